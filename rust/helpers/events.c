// SPDX-License-Identifier: GPL-2.0
/* Tracepoints of the module and the functions with which Rust fires them. */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "events.h"
