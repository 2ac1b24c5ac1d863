/* SPDX-License-Identifier: MIT */
/* Lists of commands by the library's own kernel. */
#include <gpunvme/run.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "run/run.h"
#include "util/entry.h"
#include "util/opts.h"

#define CMDS_MAX (16u << 20)
#define REFUSED_PER_MS 100u /* of one thread. A GPU is faster */
#define THREADS_AT_ONCE 1024u /* of any GPU, at least */

static bool knows(uint32_t op)
{
	return op == GPUNVME_IO_READ || op == GPUNVME_IO_WRITE || op == (GPUNVME_IO_WRITE | GPUNVME_RW_FUA) || op == GPUNVME_IO_FLUSH ||
	       op == GPUNVME_IO_WRITE_ZEROES || op == GPUNVME_IO_DSM;
}

static int check_counts(const struct gpunvme_commands *list, uint32_t queues)
{
	if (!queues || !list->threads || !list->each || !list->cmd)
		return gnv_fail(-EINVAL, "gpunvme_run_commands: no queue, or no command");
	if (list->threads > GNV_RUN_THREADS_MAX || (uint64_t)list->threads * list->each > CMDS_MAX)
		return gnv_fail(-EINVAL, "%u threads with %u commands each are too many for a list: use %u threads and %u commands or less",
				list->threads, list->each, GNV_RUN_THREADS_MAX, CMDS_MAX);
	return 0;
}

static int check(const struct gpunvme_command *cmd, const struct gpunvme_commands *list, uint32_t queues)
{
	size_t i;

	for (i = 0; i < (size_t)list->threads * list->each; i++) {
		if (cmd[i].queue >= queues)
			return gnv_fail(-EINVAL, "command %zu of the list names queue %u, and there are %u", i, cmd[i].queue, queues);
		if (!knows(cmd[i].op))
			return gnv_fail(-EINVAL, "command %zu of the list is 0x%x, which is none that a list has", i, cmd[i].op);
	}
	return 0;
}

/* The caller may change its list meanwhile. Threads get a checked copy. */
static struct gpunvme_command *copy_cmds(const struct gpunvme_commands *list)
{
	const size_t count = (size_t)list->threads * list->each;
	struct gpunvme_command *cmd = malloc(count * sizeof(*cmd));
	size_t i;

	if (!cmd)
		return NULL;
	memcpy(cmd, list->cmd, count * sizeof(*cmd));
	for (i = 0; i < count; i++)
		cmd[i].status = -GPUNVME_EAGAIN;
	return cmd;
}

/* What is refused moves no queue: a list of nothing else must not be taken for a kernel that hangs. */
static uint32_t own_ms(const struct gpunvme_commands *list)
{
	return list->each * (1 + list->threads / THREADS_AT_ONCE) / REFUSED_PER_MS;
}

static int carry_out(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf,
		     struct gpunvme_command *cmd, const struct gpunvme_commands *list)
{
	struct gnv_commands_args args = { .dbuf = *dbuf, .each = list->each, .queues = queues };
	struct gnv_run run = {
		.gpu = gpu, .dq = dq, .queues = queues, .threads = list->threads, .kernel = GNV_KERNEL_COMMANDS, .args = &args,
		.args_len = sizeof(args), .args_dq = &args.dq, .args_result = &args.cmd, .result = cmd, .sent = true,
		.result_size = list->each * sizeof(*cmd), .ms = own_ms(list),
	};
	size_t i;
	int ret = check(cmd, list, queues);

	if (!ret)
		ret = gnv_run_kernel(&run);
	for (i = 0; !ret && i < (size_t)list->threads * list->each; i++)
		list->cmd[i].status = cmd[i].status;
	return ret;
}

GPUNVME_API int gpunvme_run_commands(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				  const struct gpunvme_dbuf *dbuf, struct gpunvme_commands *user)
{
	struct gpunvme_commands list = GPUNVME_COMMANDS_INIT;
	struct gpunvme_command *cmd;
	int ret = gnv_run_enter(gpu, dq, dbuf, user, &list, commands);

	if (!ret)
		ret = check_counts(&list, queues);
	if (!ret)
		ret = gnv_run_check(gpu, dq, queues, dbuf);
	if (ret)
		return ret;
	cmd = copy_cmds(&list);
	ret = cmd ? carry_out(gpu, dq, queues, dbuf, cmd, &list) : gnv_fail(-ENOMEM, "out of memory");
	free(cmd);
	return ret;
}
