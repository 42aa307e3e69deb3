// SPDX-License-Identifier: GPL-2.0
/*
 * Module parameters.
 *
 * They are defined in C since the Rust macro makes read-only parameters without
 * a file in sysfs, and these are meant to be switched at run time.
 */
#include <linux/atomic.h>
#include <linux/moduleparam.h>

#include "params.h"

bool vhost_vsock_rs_rx_batch = true;
module_param_named(rx_batch, vhost_vsock_rs_rx_batch, bool, 0644);
MODULE_PARM_DESC(rx_batch, "Publish used RX buffers in batches (default: Y)");

bool vhost_vsock_rs_tx_batch = true;
module_param_named(tx_batch, vhost_vsock_rs_tx_batch, bool, 0644);
MODULE_PARM_DESC(tx_batch, "Publish used TX buffers in batches (default: Y)");

bool vhost_vsock_rs_rx_coalesce = true;
module_param_named(rx_coalesce, vhost_vsock_rs_rx_coalesce, bool, 0644);
MODULE_PARM_DESC(rx_coalesce, "Put queued packets of one flow into one RX buffer (default: Y)");

bool vhost_vsock_rs_tx_coalesce = true;
module_param_named(tx_coalesce, vhost_vsock_rs_tx_coalesce, bool, 0644);
MODULE_PARM_DESC(tx_coalesce, "Deliver runs of TX packets of one flow as one packet (default: Y)");

bool vhost_vsock_rs_offer_in_order;
module_param_named(offer_in_order, vhost_vsock_rs_offer_in_order, bool, 0644);
MODULE_PARM_DESC(offer_in_order, "Show VIRTIO_F_IN_ORDER in VHOST_GET_FEATURES; it is accepted in any case (default: N)");

unsigned int vhost_vsock_rs_busyloop_us;
module_param_named(busyloop_us, vhost_vsock_rs_busyloop_us, uint, 0644);
MODULE_PARM_DESC(busyloop_us, "Microseconds to poll for more work before notifications are enabled, for queues without a VHOST_SET_VRING_BUSYLOOP_TIMEOUT of their own (default: 0, off)");

unsigned int vhost_vsock_rs_rx_linger_us = 1000;
module_param_named(rx_linger_us, vhost_vsock_rs_rx_linger_us, uint, 0644);
MODULE_PARM_DESC(rx_linger_us, "Most microseconds that the worker, having taken many small packets for the guest, leaves their sender to add more before it takes them (default: 1000; 0: off)");

unsigned int vhost_vsock_rs_tx_linger_us = 1000;
module_param_named(tx_linger_us, vhost_vsock_rs_tx_linger_us, uint, 0644);
MODULE_PARM_DESC(tx_linger_us, "Most microseconds after which the worker, having taken many packets, looks for more by itself before it has the guest kick (default: 1000; 0: off)");

#ifdef VHOST_VSOCK_RS_FAULTS
static unsigned int fail_alloc_nth;
module_param(fail_alloc_nth, uint, 0644);
MODULE_PARM_DESC(fail_alloc_nth, "Test builds only: every Nth packet allocation fails (default: 0, none)");

static atomic_t fail_alloc_count = ATOMIC_INIT(0);

bool vhost_vsock_rs_forced_failure(void)
{
	unsigned int nth = READ_ONCE(fail_alloc_nth);

	return nth && !(atomic_inc_return(&fail_alloc_count) % nth);
}
#endif
