// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's TCG that counts instructions for the Linux system that
 * runs in the machine, a task at a time, and hits of chosen kernel functions.
 *
 * It is a counter device for that system: a program there executes a long nop
 * whose displacement names an order, with arguments in rdi and rsi.
 *
 *	WATCH	rdi: kernel address, rsi: 0 for __switch_to_asm, else an event
 *	APPLY	makes the orders of WATCH effective, soon after; rdi: 1 to count from
 *		then on, 0 not to (nothing is counted at first)
 *	READ	rdi: where the counts go (struct counts), rsi: a task's pid
 *	PROFILE	rdi: pid of a task whose blocks are counted from the next APPLY on
 *	BLOCKS	rdi: where they go (struct page), rsi: first slot to look at
 *
 * A machine without the plugin takes them for nops. tests/bench/src/counter.rs is
 * the other side. The machine must have one vCPU. A nested guest's instructions
 * (after VMRUN) are counted apart and trigger nothing.
 *
 * Arguments: pid=OFFSET, of the member pid in struct task_struct, in bytes; and, if
 * wanted, by=block: faster, and where a block of instructions is left early by an
 * exception, all of it is counted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_api.h"

#define ORDER_MASK	0xffff0000u
#define ORDER_BASE	0x56530000u

enum {
	ORDER_WATCH = 1,
	ORDER_APPLY,
	ORDER_READ,
	ORDER_PROFILE,
	ORDER_BLOCKS,
};

#define EVENTS		16
/* A power of two, well above the number of tasks that ever run. */
#define TASKS		(1 << 15)
/* A power of two, well above the number of blocks that a profiled machine runs. */
#define BLOCKS		(1 << 18)
#define PAGE_BLOCKS	255
#define COUNTS_MAGIC	0x746e756f63ull

/* What READ writes, in this order, all of 64 bits. */
struct counts {
	uint64_t magic;		/* COUNTS_MAGIC */
	uint64_t applied;	/* orders of APPLY that took effect */
	uint64_t busy;		/* instructions of all tasks but the idle one */
	uint64_t idle;		/* of the idle task, interrupts included */
	uint64_t guest;		/* of a nested guest */
	uint64_t task_kernel;	/* of the task asked for, in the kernel */
	uint64_t task_user;	/* the same, in user space */
	uint64_t task_runs;	/* times that it was switched to */
	uint64_t vmruns;	/* times that a nested guest was entered */
	uint64_t events[EVENTS];
};

/* What BLOCKS writes: blocks that ran, and the slot to go on at; 0 at the end. */
struct page {
	uint64_t next;
	uint64_t count;
	struct {
		uint64_t address;
		uint64_t executed;	/* instructions, in all of its runs */
	} blocks[PAGE_BLOCKS];
};

struct block {
	uint64_t address;
	uint64_t insns;
	uint64_t runs;
};

struct task {
	uint64_t address;
	uint32_t pid;
	uint64_t kernel;
	uint64_t user;
	uint64_t runs;
};

/* Instructions executed so far, bumped by the translated code itself. */
struct executed {
	uint64_t kernel;
	uint64_t user;
};

EXPORTED int qemu_plugin_version = QEMU_API_VERSION;

static uint64_t plugin_id;
static size_t pid_offset;
static void *scoreboard;
static struct executed charged;
static struct task tasks[TASKS];
static struct task unknown = { .pid = UINT32_MAX };
static struct task *running = &unknown;
static bool in_guest;
static bool counting;
static bool by_block;
static struct counts total;
static uint64_t watched[EVENTS];
static uint64_t after_vmrun[4];
static struct block blocks[BLOCKS];
static size_t blocks_used;
static uint32_t profiled = UINT32_MAX;
static void *rdi, *rsi;
static struct g_byte_array *bytes;

static void find_registers(void)
{
	struct g_array *all = qemu_plugin_get_registers();
	unsigned int size = g_array_get_element_size(all);

	for (unsigned int i = 0; i < all->len; i++) {
		struct qemu_register *reg = (void *)(all->data + (size_t)i * size);

		if (!strcmp(reg->name, "rdi"))
			rdi = reg->handle;
		if (!strcmp(reg->name, "rsi"))
			rsi = reg->handle;
	}
}

static uint64_t value_of(void **reg)
{
	uint64_t value = 0;

	if (!*reg)
		find_registers();
	g_byte_array_set_size(bytes, 0);
	if (qemu_plugin_read_register(*reg, bytes) && bytes->len >= sizeof(value))
		memcpy(&value, bytes->data, sizeof(value));
	return value;
}

static uint32_t pid_of(uint64_t address)
{
	uint32_t pid = UINT32_MAX;

	if (qemu_plugin_read_memory_vaddr(address + pid_offset, bytes, sizeof(pid)))
		memcpy(&pid, bytes->data, sizeof(pid));
	return pid;
}

/* Charges what was executed since the last call to who executed it. */
static void charge(void)
{
	struct executed *now = qemu_plugin_scoreboard_find(scoreboard, 0);
	uint64_t kernel = now->kernel - charged.kernel;
	uint64_t user = now->user - charged.user;

	charged = *now;
	if (in_guest) {
		total.guest += kernel + user;
		return;
	}
	running->kernel += kernel;
	running->user += user;
	if (running->pid)
		total.busy += kernel + user;
	else
		total.idle += kernel + user;
}

static struct task *task_at(uint64_t address)
{
	size_t slot = (address >> 6) * 0x9e3779b97f4a7c15ull >> 49;
	uint32_t pid = pid_of(address);

	while (tasks[slot].address && tasks[slot].address != address)
		slot = (slot + 1) % TASKS;
	/* The memory of a task that is gone may be a new task's. */
	if (tasks[slot].address != address || tasks[slot].pid != pid)
		tasks[slot] = (struct task){ .address = address, .pid = pid };
	return &tasks[slot];
}

static void on_switch(unsigned int vcpu, void *data)
{
	if (in_guest)
		return;
	charge();
	running = task_at(value_of(&rsi));
	running->runs++;
}

static void on_vmrun(unsigned int vcpu, void *data)
{
	charge();
	in_guest = true;
	total.vmruns++;
}

static void on_vmexit(unsigned int vcpu, void *data)
{
	charge();
	in_guest = false;
}

static void on_event(unsigned int vcpu, void *data)
{
	if (!in_guest)
		total.events[(uintptr_t)data]++;
}

static void read_counts(uint64_t address, uint32_t pid)
{
	struct counts counts;

	charge();
	counts = total;
	counts.magic = COUNTS_MAGIC;
	for (size_t i = 0; i < TASKS; i++) {
		if (!tasks[i].address || tasks[i].pid != pid)
			continue;
		counts.task_kernel += tasks[i].kernel;
		counts.task_user += tasks[i].user;
		counts.task_runs += tasks[i].runs;
	}
	g_byte_array_set_size(bytes, sizeof(counts));
	memcpy(bytes->data, &counts, sizeof(counts));
	qemu_plugin_write_memory_vaddr(address, bytes);
}

static void on_block(unsigned int vcpu, void *data)
{
	struct block *block = data;

	if (!in_guest && running->pid == profiled)
		block->runs++;
}

/* The entry of a block; NULL if there are too many. */
static struct block *block_of(uint64_t address, uint64_t insns)
{
	size_t slot = (address + insns) * 0x9e3779b97f4a7c15ull >> 46;

	if (blocks_used >= BLOCKS / 2)
		return NULL;
	while (blocks[slot].insns &&
	       (blocks[slot].address != address || blocks[slot].insns != insns))
		slot = (slot + 1) % BLOCKS;
	if (!blocks[slot].insns) {
		blocks[slot] = (struct block){ .address = address, .insns = insns };
		blocks_used++;
	}
	return &blocks[slot];
}

static void read_blocks(uint64_t address, uint64_t slot)
{
	struct page page = { 0 };

	for (; slot < BLOCKS && page.count < PAGE_BLOCKS; slot++) {
		if (!blocks[slot].runs)
			continue;
		page.blocks[page.count].address = blocks[slot].address;
		page.blocks[page.count].executed = blocks[slot].runs * blocks[slot].insns;
		page.count++;
	}
	page.next = slot < BLOCKS ? slot : 0;
	g_byte_array_set_size(bytes, sizeof(page));
	memcpy(bytes->data, &page, sizeof(page));
	qemu_plugin_write_memory_vaddr(address, bytes);
}

static void start_profile(uint32_t pid)
{
	profiled = pid;
	for (size_t i = 0; i < BLOCKS; i++)
		blocks[i].runs = 0;
}

static void begin(void *data);

static void on_order(unsigned int vcpu, void *data)
{
	uint64_t first = value_of(&rdi), second = value_of(&rsi);

	switch ((uintptr_t)data) {
	case ORDER_WATCH:
		if (second < EVENTS)
			watched[second] = first;
		break;
	case ORDER_APPLY:
		charge();
		counting = first;
		running = &unknown;
		qemu_plugin_reset(plugin_id, begin, NULL);
		break;
	case ORDER_READ:
		read_counts(first, second);
		break;
	case ORDER_PROFILE:
		start_profile(first);
		break;
	case ORDER_BLOCKS:
		read_blocks(first, second);
		break;
	}
}

/* The order that an instruction is; 0 if it is none. */
static unsigned int order_of(struct qemu_insn *insn)
{
	uint8_t code[7];
	uint32_t word;

	if (qemu_plugin_insn_size(insn) != sizeof(code) ||
	    qemu_plugin_insn_data(insn, code, sizeof(code)) != sizeof(code) ||
	    code[0] != 0x0f || code[1] != 0x1f || code[2] != 0x80)
		return 0;
	memcpy(&word, code + 3, sizeof(word));
	return (word & ORDER_MASK) == ORDER_BASE ? word & ~ORDER_MASK : 0;
}

static bool is_vmrun(struct qemu_insn *insn)
{
	uint8_t code[3];

	return qemu_plugin_insn_size(insn) == sizeof(code) &&
	       qemu_plugin_insn_data(insn, code, sizeof(code)) == sizeof(code) &&
	       code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xd8;
}

static void watch_vmrun(struct qemu_insn *insn, uint64_t address)
{
	for (size_t i = 0; i < sizeof(after_vmrun) / sizeof(*after_vmrun); i++) {
		if (after_vmrun[i] && after_vmrun[i] != address + 3)
			continue;
		after_vmrun[i] = address + 3;
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_vmrun, QEMU_CB_NO_REGS, NULL);
		return;
	}
}

static void watch_order(struct qemu_insn *insn)
{
	unsigned int order = order_of(insn);

	if (order)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_order, QEMU_CB_R_REGS,
						       (void *)(uintptr_t)order);
}

static void watch_insn(struct qemu_insn *insn, uint64_t address)
{
	if (is_vmrun(insn))
		watch_vmrun(insn, address);
	for (size_t i = 0; i < sizeof(after_vmrun) / sizeof(*after_vmrun); i++)
		if (address == after_vmrun[i])
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_vmexit, QEMU_CB_NO_REGS,
							       NULL);
	if (address == watched[0])
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_switch, QEMU_CB_R_REGS, NULL);
	for (uintptr_t i = 1; i < EVENTS; i++)
		if (address == watched[i])
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_event, QEMU_CB_NO_REGS,
							       (void *)i);
}

static void watch_block(struct qemu_tb *tb, size_t count)
{
	struct block *block = block_of(qemu_plugin_tb_vaddr(tb), count);

	if (block)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_CB_NO_REGS, block);
}

static struct qemu_u64 counter_for(uint64_t address)
{
	return (struct qemu_u64){
		.scoreboard = scoreboard,
		.offset = address >> 63 ? offsetof(struct executed, kernel) :
					  offsetof(struct executed, user),
	};
}

static void on_translation(struct qemu_tb *tb, void *data)
{
	size_t count = qemu_plugin_tb_n_insns(tb);

	if (counting && by_block)
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_INLINE_ADD_U64,
								  counter_for(qemu_plugin_tb_vaddr(tb)),
								  count);
	if (profiled != UINT32_MAX)
		watch_block(tb, count);
	for (size_t i = 0; i < count; i++) {
		struct qemu_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);

		watch_order(insn);
		if (!counting)
			continue;
		watch_insn(insn, address);
		if (!by_block)
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_INLINE_ADD_U64,
									    counter_for(address), 1);
	}
}

/* Called with all translations gone: from here on what is watched is seen. */
static void begin(void *data)
{
	total.applied++;
	qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_translation, NULL);
}

EXPORTED int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv);

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
	plugin_id = id;
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "by=block")) {
			by_block = true;
		} else if (sscanf(argv[i], "pid=%zu", &pid_offset) != 1) {
			fprintf(stderr, "count: unknown argument %s\n", argv[i]);
			return 1;
		}
	}
	if (!pid_offset) {
		fprintf(stderr, "count: the argument pid=OFFSET is missing\n");
		return 1;
	}
	if (!info->system_emulation || info->system.smp_vcpus != 1) {
		fprintf(stderr, "count: the machine must have one vCPU\n");
		return 1;
	}
	bytes = g_byte_array_new();
	scoreboard = qemu_plugin_scoreboard_new(sizeof(struct executed));
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation, NULL);
	return 0;
}
