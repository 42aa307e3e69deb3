/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of QEMU's plugin API, version 7, that the counter uses, and of GLib
 * what that API is made of: distributions ship QEMU without its plugin header.
 * The names are those of QEMU's documentation of TCG plugins.
 */
#ifndef BENCH_QEMU_API_H
#define BENCH_QEMU_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QEMU_API_VERSION	7
#define EXPORTED		__attribute__((visibility("default")))

/* GLib's public array types: the data first, then the number of elements. */
struct g_array {
	char *data;
	unsigned int len;
};

struct g_byte_array {
	uint8_t *data;
	unsigned int len;
};

struct g_byte_array *g_byte_array_new(void);
struct g_byte_array *g_byte_array_set_size(struct g_byte_array *array, unsigned int len);
unsigned int g_array_get_element_size(struct g_array *array);

struct qemu_info {
	const char *target;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} system;
};

/* An unsigned member of the entry that a scoreboard has for each vCPU. */
struct qemu_u64 {
	void *scoreboard;
	size_t offset;
};

struct qemu_register {
	void *handle;
	const char *name;
	const char *feature;
};

enum {
	QEMU_CB_NO_REGS,
	QEMU_CB_R_REGS,
};

enum {
	QEMU_INLINE_ADD_U64,
};

struct qemu_tb;
struct qemu_insn;
typedef void (*qemu_exec_cb)(unsigned int vcpu, void *data);
typedef void (*qemu_tb_cb)(struct qemu_tb *tb, void *data);
typedef void (*qemu_cb)(void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, qemu_tb_cb cb, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_insn *insn, qemu_exec_cb cb, int flags,
					    void *data);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_insn *insn, int op,
							 struct qemu_u64 entry, uint64_t value);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_tb *tb, qemu_exec_cb cb, int flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_tb *tb, int op,
						       struct qemu_u64 entry, uint64_t value);
void qemu_plugin_reset(uint64_t id, qemu_cb cb, void *data);
size_t qemu_plugin_tb_n_insns(struct qemu_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_tb *tb);
struct qemu_insn *qemu_plugin_tb_get_insn(struct qemu_tb *tb, size_t index);
size_t qemu_plugin_insn_data(struct qemu_insn *insn, void *data, size_t len);
size_t qemu_plugin_insn_size(struct qemu_insn *insn);
uint64_t qemu_plugin_insn_vaddr(struct qemu_insn *insn);
void *qemu_plugin_scoreboard_new(size_t size);
void *qemu_plugin_scoreboard_find(void *scoreboard, unsigned int vcpu);
struct g_array *qemu_plugin_get_registers(void);
bool qemu_plugin_read_register(void *handle, struct g_byte_array *data);
bool qemu_plugin_read_memory_vaddr(uint64_t addr, struct g_byte_array *data, size_t len);
bool qemu_plugin_write_memory_vaddr(uint64_t addr, struct g_byte_array *data);

#endif /* BENCH_QEMU_API_H */
