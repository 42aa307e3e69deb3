/* SPDX-License-Identifier: GPL-2.0 */
/* Module parameters, read by the Rust side with READ_ONCE() semantics. */
#ifndef _VHOST_VSOCK_RS_PARAMS_H
#define _VHOST_VSOCK_RS_PARAMS_H

#include <linux/types.h>

extern bool vhost_vsock_rs_rx_batch;
extern bool vhost_vsock_rs_tx_batch;
extern bool vhost_vsock_rs_rx_coalesce;
extern bool vhost_vsock_rs_tx_coalesce;
extern bool vhost_vsock_rs_offer_in_order;
extern unsigned int vhost_vsock_rs_busyloop_us;
extern unsigned int vhost_vsock_rs_rx_linger_us;
extern unsigned int vhost_vsock_rs_tx_linger_us;

#ifdef VHOST_VSOCK_RS_FAULTS
bool vhost_vsock_rs_forced_failure(void);
#else
static inline bool vhost_vsock_rs_forced_failure(void)
{
	return false;
}
#endif

#endif /* _VHOST_VSOCK_RS_PARAMS_H */
