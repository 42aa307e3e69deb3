// SPDX-License-Identifier: GPL-2.0
/*
 * Shims over what bindgen cannot reach: inline functions, macros and unions.
 */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/skbuff.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include <net/af_vsock.h>

#include "helpers.h"
#include "params.h"

static const int rs_vhost_vsock_bits[] = {
	VHOST_FEATURES,
	VIRTIO_F_ACCESS_PLATFORM,
	VIRTIO_VSOCK_F_SEQPACKET
};

/* The feature bits of the C driver: VHOST_VSOCK_FEATURES in drivers/vhost/vsock.c. */
u64 rs_vhost_vsock_features(void)
{
	return VHOST_FEATURES_U64(rs_vhost_vsock_bits, 0);
}

void rs_vhost_vq_set_backend(struct vhost_virtqueue *vq, void *data)
{
	vhost_vq_set_backend(vq, data);
}

/* Readable without vq->mutex, as a hint: hence data_race(). */
void *rs_vhost_vq_get_backend(struct vhost_virtqueue *vq)
{
	/* A hint for whoever does not hold vq->mutex: see send_pkt(). */
	return data_race(vhost_vq_get_backend(vq));
}

bool rs_vhost_has_feature(struct vhost_virtqueue *vq, int bit)
{
	return vhost_has_feature(vq, bit);
}

/* vq->acked_features is a union with the array of all 128 bits. */
void rs_vhost_set_acked_features(struct vhost_virtqueue *vq, u64 features)
{
	vq->acked_features = features;
}

u32 rs_cpu_to_vhost32(struct vhost_virtqueue *vq, u32 val)
{
	return (__force u32)cpu_to_vhost32(vq, val);
}

void rs_vq_err(struct vhost_virtqueue *vq, const char *what)
{
	vq_err(vq, "%s\n", what);
}

/*
 * Steps over the next available entry, which vhost_get_vq_desc() refused, and
 * returns the head that it names, not checked against vq->num.  Returns
 * -EINVAL where the entry cannot be named or where the available index itself
 * is wrong, -EFAULT where the ring cannot be read.
 *
 * Context: vq->mutex held, in a thread that runs in the owner's mm.
 */
int rs_vhost_skip_avail(struct vhost_virtqueue *vq)
{
	u16 waiting = vq->avail_idx - vq->last_avail_idx;
	u16 next = vq->last_avail_idx & (vq->num - 1);
	__virtio16 head;

	if (vq->iotlb || vhost_has_feature(vq, VIRTIO_F_IN_ORDER))
		return -EINVAL;
	if (!waiting || waiting > vq->num)
		return -EINVAL;
	if (get_user(head, (__virtio16 __user *)&vq->avail->ring[next]))
		return -EFAULT;

	vq->last_avail_idx++;
	return vhost16_to_cpu(vq, head);
}

struct rs_mm_job {
	struct work_struct work;
	struct mm_struct *mm;
	void (*run)(void *data);
	void *data;
};

static void rs_mm_work(struct work_struct *work)
{
	struct rs_mm_job *job = container_of(work, struct rs_mm_job, work);

	kthread_use_mm(job->mm);
	job->run(job->data);
	kthread_unuse_mm(job->mm);
}

/*
 * Calls @run in a kernel thread that uses @mm, and waits for its end.
 *
 * Context: process context; sleeps. The caller holds a reference to @mm.
 */
void rs_run_in_mm(struct mm_struct *mm, void (*run)(void *data), void *data)
{
	struct rs_mm_job job = { .mm = mm, .run = run, .data = data };

	INIT_WORK_ONSTACK(&job.work, rs_mm_work);
	queue_work(system_dfl_wq, &job.work);
	flush_work(&job.work);
	destroy_work_on_stack(&job.work);
}

/* About a microsecond a tick, as busy_clock() in drivers/vhost/net.c. */
u64 rs_busy_clock(void)
{
	return local_clock() >> 10;
}

bool rs_should_stop_polling(void)
{
	return need_resched() || signal_pending(current);
}

void rs_cpu_relax(void)
{
	cpu_relax();
}

/* Whether both queues have the same worker; it is not looked at. */
bool rs_vhost_share_worker(struct vhost_virtqueue *a, struct vhost_virtqueue *b)
{
	return rcu_access_pointer(a->worker) == rcu_access_pointer(b->worker);
}

bool rs_vhost_work_is_queued(const struct vhost_work *work)
{
	return test_bit(VHOST_WORK_QUEUED, &work->flags);
}

static bool rs_vhost_is_queued(struct vhost_virtqueue *vq, struct vhost_virtqueue *other,
			       struct vhost_work *work)
{
	return rs_vhost_work_is_queued(work) && rs_vhost_share_worker(vq, other);
}

/*
 * Whether work waits for the worker of @vq. vhost_vq_has_work() does not see what
 * the core has taken off the worker's list and not begun: that has its flag set, and
 * queueing it once more wakes nobody. @send_work is the work of the device that
 * belongs to no poll; queue 0, RX, has its worker do it.
 */
bool rs_vhost_work_waits(struct vhost_virtqueue *vq, struct vhost_work *send_work)
{
	struct vhost_dev *dev = vq->dev;
	int i;

	for (i = 0; i < dev->nvqs; i++)
		if (rs_vhost_is_queued(vq, dev->vqs[i], &dev->vqs[i]->poll.work))
			return true;
	return rs_vhost_is_queued(vq, dev->vqs[0], send_work) || vhost_vq_has_work(vq);
}

/*
 * Sleeps for at most @us microseconds, or until work waits for the worker of @vq,
 * which this is called in. Returns whether work waits.
 *
 * Context: process context; no lock held.
 */
bool rs_vhost_linger(struct vhost_virtqueue *vq, struct vhost_work *send_work, u32 us)
{
	u64 slack = us * NSEC_PER_USEC / 4;
	ktime_t time = us_to_ktime(us) - slack;

	/* Whoever queues work wakes the worker, whatever it sleeps in. */
	set_current_state(TASK_IDLE);
	if (!rs_vhost_work_waits(vq, send_work))
		schedule_hrtimeout_range(&time, slack, HRTIMER_MODE_REL);
	__set_current_state(TASK_RUNNING);
	return rs_vhost_work_waits(vq, send_work);
}

struct net *rs_get_current_net(netns_tracker *tracker)
{
	return get_net_track(current->nsproxy->net_ns, tracker, GFP_KERNEL);
}

void rs_put_net_track(struct net *net, netns_tracker *tracker)
{
	put_net_track(net, tracker);
}

bool rs_vsock_net_check_mode(struct net *ns0, struct net *ns1)
{
	return vsock_net_check_mode(ns0, ns1);
}

/* Number of the namespace as in /proc/PID/ns/net; 0 for the initial one. */
unsigned int rs_net_inum(struct net *net)
{
	return net_eq(net, &init_net) ? 0 : net->ns.inum;
}

struct net *rs_sock_net(struct sock *sk)
{
	return sock_net(sk);
}

void rs_sock_set_done(struct sock *sk)
{
	sock_set_flag(sk, SOCK_DONE);
}

void rs_skb_queue_head_init(struct sk_buff_head *list)
{
	skb_queue_head_init(list);
}

void rs_skb_queue_lock(struct sk_buff_head *list)
{
	spin_lock_bh(&list->lock);
}

void rs_skb_queue_unlock(struct sk_buff_head *list)
{
	spin_unlock_bh(&list->lock);
}

struct sk_buff *rs_skb_peek(struct sk_buff_head *list)
{
	return skb_peek(list);
}

struct sk_buff *rs___skb_dequeue(struct sk_buff_head *list)
{
	return __skb_dequeue(list);
}

void rs___skb_queue_head(struct sk_buff_head *list, struct sk_buff *skb)
{
	__skb_queue_head(list, skb);
}

void rs___skb_queue_tail(struct sk_buff_head *list, struct sk_buff *skb)
{
	__skb_queue_tail(list, skb);
}

void rs_virtio_vsock_skb_queue_purge(struct sk_buff_head *list)
{
	virtio_vsock_skb_queue_purge(list);
}

void rs_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

/*
 * Bytes that the socket which is sending @skb, if it is one, may still send.
 *
 * Context: the transport's send_pkt(), for a packet with payload: the core has locked
 * its socket, whose transport this is.
 */
s64 rs_virtio_transport_has_space(const struct sk_buff *skb)
{
	return skb->sk ? virtio_transport_stream_has_space(vsock_sk(skb->sk)) : 0;
}

struct sk_buff *rs_virtio_vsock_alloc_skb(unsigned int size)
{
	if (vhost_vsock_rs_forced_failure())
		return NULL;
	return virtio_vsock_alloc_skb(size, GFP_KERNEL);
}

void rs_virtio_vsock_skb_put(struct sk_buff *skb, u32 len)
{
	virtio_vsock_skb_put(skb, len);
}

void rs_iov_iter_ubuf(struct iov_iter *iter, unsigned int direction,
		      void __user *buf, size_t len)
{
	iov_iter_ubuf(iter, direction, buf, len);
}

static struct sk_buff *rs_note_tap(void *seen)
{
	*(bool *)seen = true;
	return NULL;
}

/* Whether there is a vsockmon device: only then is a packet asked for. */
bool rs_vsock_has_tap(void)
{
	bool seen = false;

	vsock_deliver_tap(rs_note_tap, &seen);
	return seen;
}

/*
 * Copies @len payload bytes from @offset to @to; false on a fault.  A linear
 * packet, nearly every small one, is spared the walk over fragments.  The caller
 * has checked that the range is within skb->len, so the size is not looked at
 * again here.
 */
bool rs_skb_copy_to_iter(struct sk_buff *skb, int offset, struct iov_iter *to,
			 int len)
{
	if (!skb_is_nonlinear(skb))
		return _copy_to_iter(skb->data + offset, len, to) == len;
	return !skb_copy_datagram_iter(skb, offset, to, len);
}

/* The same in the other direction. */
bool rs_skb_copy_from_iter(struct sk_buff *skb, int offset,
			   struct iov_iter *from, int len)
{
	if (!skb_is_nonlinear(skb))
		return _copy_from_iter(skb->data + offset, len, from) == len;
	return !skb_copy_datagram_from_iter(skb, offset, from, len);
}

/*
 * The transport, which the Rust side fills before it registers it.  It stands
 * here, in .data and under the name that it has in the C driver, since
 * tools/testing/vsock finds out by /proc/kallsyms which transports there are.
 */
static struct virtio_transport vhost_transport = {
	.transport.module = THIS_MODULE,
};

struct virtio_transport *rs_vhost_transport(void)
{
	return &vhost_transport;
}

/* Serialises changes to the CID table; taken inside the lock of a guest's debugfs file only. */
static DEFINE_MUTEX(rs_vhost_vsock_mutex);

void rs_vhost_vsock_mutex_lock(void)
{
	mutex_lock(&rs_vhost_vsock_mutex);
}

void rs_vhost_vsock_mutex_unlock(void)
{
	mutex_unlock(&rs_vhost_vsock_mutex);
}
