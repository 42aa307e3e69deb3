/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shims over what bindgen cannot reach: inline functions, macros and unions.
 *
 * A shim rs_NAME() does what NAME() of the kernel does, under the same locks
 * (rs___skb_dequeue() takes none, as __skb_dequeue()).
 * The few that are not named after a kernel function are explained at their
 * definition.
 */
#ifndef _VHOST_VSOCK_RS_HELPERS_H
#define _VHOST_VSOCK_RS_HELPERS_H

#include <linux/virtio_vsock.h>
#include <net/af_vsock.h>
#include <net/net_namespace.h>

#include "vhost.h"

u64 rs_vhost_vsock_features(void);
void rs_vhost_vq_set_backend(struct vhost_virtqueue *vq, void *data);
void *rs_vhost_vq_get_backend(struct vhost_virtqueue *vq);
bool rs_vhost_has_feature(struct vhost_virtqueue *vq, int bit);
void rs_vhost_set_acked_features(struct vhost_virtqueue *vq, u64 features);
u32 rs_cpu_to_vhost32(struct vhost_virtqueue *vq, u32 val);
void rs_vq_err(struct vhost_virtqueue *vq, const char *what);
int rs_vhost_skip_avail(struct vhost_virtqueue *vq);

void rs_run_in_mm(struct mm_struct *mm, void (*run)(void *data), void *data);
u64 rs_busy_clock(void);
bool rs_should_stop_polling(void);
void rs_cpu_relax(void);
bool rs_vhost_share_worker(struct vhost_virtqueue *a, struct vhost_virtqueue *b);
bool rs_vhost_work_waits(struct vhost_virtqueue *vq, struct vhost_work *send_work);
bool rs_vhost_work_is_queued(const struct vhost_work *work);
bool rs_vhost_linger(struct vhost_virtqueue *vq, struct vhost_work *send_work, u32 us);

struct net *rs_get_current_net(netns_tracker *tracker);
void rs_put_net_track(struct net *net, netns_tracker *tracker);
bool rs_vsock_net_check_mode(struct net *ns0, struct net *ns1);
struct virtio_transport *rs_vhost_transport(void);

unsigned int rs_net_inum(struct net *net);
struct net *rs_sock_net(struct sock *sk);
void rs_sock_set_done(struct sock *sk);

void rs_skb_queue_head_init(struct sk_buff_head *list);
void rs_skb_queue_lock(struct sk_buff_head *list);
void rs_skb_queue_unlock(struct sk_buff_head *list);
struct sk_buff *rs_skb_peek(struct sk_buff_head *list);
struct sk_buff *rs___skb_dequeue(struct sk_buff_head *list);
void rs___skb_queue_head(struct sk_buff_head *list, struct sk_buff *skb);
void rs___skb_queue_tail(struct sk_buff_head *list, struct sk_buff *skb);
void rs_virtio_vsock_skb_queue_purge(struct sk_buff_head *list);
void rs_kfree_skb(struct sk_buff *skb);
s64 rs_virtio_transport_has_space(const struct sk_buff *skb);
struct sk_buff *rs_virtio_vsock_alloc_skb(unsigned int size);
void rs_virtio_vsock_skb_put(struct sk_buff *skb, u32 len);
void rs_iov_iter_ubuf(struct iov_iter *iter, unsigned int direction,
		      void __user *buf, size_t len);
bool rs_vsock_has_tap(void);
bool rs_skb_copy_to_iter(struct sk_buff *skb, int offset, struct iov_iter *to,
			 int len);
bool rs_skb_copy_from_iter(struct sk_buff *skb, int offset,
			   struct iov_iter *from, int len);

void rs_vhost_vsock_mutex_lock(void);
void rs_vhost_vsock_mutex_unlock(void);

#endif /* _VHOST_VSOCK_RS_HELPERS_H */
