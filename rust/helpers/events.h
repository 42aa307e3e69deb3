/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM vhost_vsock_rs

#if !defined(_VHOST_VSOCK_RS_EVENTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define _VHOST_VSOCK_RS_EVENTS_H

#include <linux/tracepoint.h>

/* The end of one pass of the worker over one queue. */
DECLARE_EVENT_CLASS(vhost_vsock_rs_pass,
	TP_PROTO(u32 cid, u32 packets, u32 buffers, u64 bytes, u32 publishes),
	TP_ARGS(cid, packets, buffers, bytes, publishes),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, packets)
		__field(u32, buffers)
		__field(u64, bytes)
		__field(u32, publishes)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->packets = packets;
		__entry->buffers = buffers;
		__entry->bytes = bytes;
		__entry->publishes = publishes;
	),
	TP_printk("cid=%u packets=%u buffers=%u bytes=%llu publishes=%u",
		  __entry->cid, __entry->packets, __entry->buffers,
		  __entry->bytes, __entry->publishes)
);

DEFINE_EVENT(vhost_vsock_rs_pass, vhost_vsock_rs_rx_pass,
	TP_PROTO(u32 cid, u32 packets, u32 buffers, u64 bytes, u32 publishes),
	TP_ARGS(cid, packets, buffers, bytes, publishes)
);

DEFINE_EVENT(vhost_vsock_rs_pass, vhost_vsock_rs_tx_pass,
	TP_PROTO(u32 cid, u32 packets, u32 buffers, u64 bytes, u32 publishes),
	TP_ARGS(cid, packets, buffers, bytes, publishes)
);

/* A guest was started (running = 1) or stopped (0). */
TRACE_EVENT(vhost_vsock_rs_running,
	TP_PROTO(u32 cid, bool running),
	TP_ARGS(cid, running),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(bool, running)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->running = running;
	),
	TP_printk("cid=%u running=%d", __entry->cid, __entry->running)
);

/* A buffer of the guest was refused: queue 0 is RX, 1 is TX. */
TRACE_EVENT(vhost_vsock_rs_bad_buffer,
	TP_PROTO(u32 cid, u32 queue, int index),
	TP_ARGS(cid, queue, index),
	TP_STRUCT__entry(
		__field(u32, cid)
		__field(u32, queue)
		__field(int, index)
	),
	TP_fast_assign(
		__entry->cid = cid;
		__entry->queue = queue;
		__entry->index = index;
	),
	TP_printk("cid=%u queue=%u head=%d", __entry->cid, __entry->queue,
		  __entry->index)
);

#endif /* _VHOST_VSOCK_RS_EVENTS_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE events
#include <trace/define_trace.h>
