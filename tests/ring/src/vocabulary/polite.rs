// SPDX-License-Identifier: GPL-2.0
//! A well-behaved guest that goes on exchanging data while another one misbehaves.
