/*
 * What a guest's processors do, counted in QEMU's emulation: instructions, and bytes of one value that are loaded and stored. Of a message
 * that has no other byte the stores say how often it was copied, the loads how often it was read.
 *
 * Read first: docs/devel/tcg-plugins.rst of QEMU. What is declared here is of its qemu-plugin.h, version 4, which Debian does not package.
 *
 * Argument: socket=PATH. Whoever connects there gets the counts until now on one line: instructions, bytes loaded and stored, each of the
 * kernel and of programs.
 */

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MARKS UINT64_C(0xa7a7a7a7a7a7a7a7)

struct block;
struct instruction;
struct scoreboard;
struct value {
	int type;
	union {
		uint64_t word;
		uint64_t words[2];
	};
};
struct counter {
	struct scoreboard *board;
	size_t offset;
};
enum { NO_REGISTERS = 0, READ_AND_WRITTEN = 3, ADD = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*call)(uint64_t, struct block *));
size_t qemu_plugin_tb_n_insns(const struct block *block);
struct instruction *qemu_plugin_tb_get_insn(const struct block *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct instruction *instruction);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct instruction *, int operation, struct counter, uint64_t number);
void qemu_plugin_register_vcpu_mem_cb(
	struct instruction *, void (*call)(unsigned, uint32_t, uint64_t, void *), int registers, int accesses, void *given);
unsigned qemu_plugin_mem_size_shift(uint32_t access);
bool qemu_plugin_mem_is_store(uint32_t access);
struct value qemu_plugin_mem_get_value(uint32_t access);
struct scoreboard *qemu_plugin_scoreboard_new(size_t bytes);
void qemu_plugin_u64_add(struct counter, unsigned processor, uint64_t number);
uint64_t qemu_plugin_u64_sum(struct counter);

EXPORT int qemu_plugin_version = 4;

/* Of each processor; first the kernel's, then the programs'. */
enum { INSTRUCTIONS, LOADED, STORED, KINDS };
static struct scoreboard *board;

static struct counter
counter(int kind, int whose)
{
	return (struct counter){ board, sizeof(uint64_t) * (2 * kind + whose) };
}

static void
on_access(unsigned processor, uint32_t access, uint64_t address, void *given)
{
	unsigned shift = qemu_plugin_mem_size_shift(access), bytes = 1U << shift;
	struct value value = qemu_plugin_mem_get_value(access);
	uint64_t mask = bytes < 8 ? (UINT64_C(1) << 8 * bytes) - 1 : UINT64_MAX;

	(void)address;
	if ((value.word & mask) != (MARKS & mask) || (bytes == 16 && value.words[1] != MARKS) || bytes > 16)
		return;
	qemu_plugin_u64_add(counter(qemu_plugin_mem_is_store(access) ? STORED : LOADED, given != NULL), processor, bytes);
}

static void
on_translation(uint64_t id, struct block *block)
{
	(void)id;
	for (size_t at = 0; at < qemu_plugin_tb_n_insns(block); at++) {
		struct instruction *instruction = qemu_plugin_tb_get_insn(block, at);
		int is_programs = qemu_plugin_insn_vaddr(instruction) >> 63 == 0;

		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, ADD, counter(INSTRUCTIONS, is_programs), 1);
		qemu_plugin_register_vcpu_mem_cb(instruction, on_access, NO_REGISTERS, READ_AND_WRITTEN, is_programs ? &board : NULL);
	}
}

static void *
answer(void *listening)
{
	for (;;) {
		int asking = accept(*(int *)listening, NULL, NULL);

		if (asking < 0)
			return NULL;
		for (int at = 0; at < 2 * KINDS; at++)
			dprintf(asking, "%" PRIu64 "%c", qemu_plugin_u64_sum(counter(at / 2, at % 2)), at == 2 * KINDS - 1 ? '\n' : ' ');
		close(asking);
	}
}

EXPORT int
qemu_plugin_install(uint64_t id, const void *machine, int count, char **arguments)
{
	static int listening;
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	pthread_t thread;

	(void)machine;
	if (count != 1 || strncmp(arguments[0], "socket=", 7) != 0 || strlen(arguments[0] + 7) >= sizeof(name.sun_path))
		return -1;
	strcpy(name.sun_path, arguments[0] + 7);
	listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listening, (struct sockaddr *)&name, sizeof(name)) != 0 || listen(listening, 8) != 0)
		return -1;
	board = qemu_plugin_scoreboard_new(2 * KINDS * sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return pthread_create(&thread, NULL, answer, &listening);
}
