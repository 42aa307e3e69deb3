/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers that bindgen reads for this module.
 *
 * vhost.h is the private header of the target kernel's vhost core
 * (drivers/vhost/vhost.h), never a copy of it.
 */
#include <linux/kthread.h>
#include <linux/vhost.h>
#include <linux/virtio_vsock.h>
#include <linux/vm_sockets.h>
#include <net/af_vsock.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "vhost.h"
#include "helpers.h"
#include "params.h"
#include "events.h"
