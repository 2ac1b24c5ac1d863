/* SPDX-License-Identifier: MIT */
/* From arguments to commands: refusals, data pointers, splitting. The controller's view is recorded and compared. */
#include "rig.h"

#define PAGE 4096ull

struct record {
	struct gpunvme_sqe cmd[64];
	struct gpunvme_dsm_range range[64];
	const struct gpunvme_dsm_range *at; /* where the range stands when a command is fetched; NULL: nowhere */
	uint32_t count;
};

static void keep(void *ctx, const struct gpunvme_sqe *cmd)
{
	struct record *record = ctx;

	if (record->count == 64)
		return;
	if (record->at)
		record->range[record->count] = *record->at;
	record->cmd[record->count++] = *cmd;
}

static struct rig *recorded(struct record *record)
{
	struct rig *r = rig_new(4, 0);

	memset(record, 0, sizeof(*record));
	r->ctrl.seen = keep;
	r->ctrl.seen_ctx = record;
	rig_start(r);
	return r;
}

static void bad_arguments_are_refused(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_dq dq = r->dq;
	struct gpunvme_dbuf odd = r->dbuf;
	struct gpunvme_req req;

	(void)state;
	rig_start(r);
	dq.lba_count = 1000;
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, 0, 0, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, 2, 0, 512), -GPUNVME_EINVAL);
	odd.iova += 1;
	assert_int_equal(gpunvme_write(&dq, &odd, 0, 0, 512, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, 0, 1000 * 512, 512), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, 0, 999 * 512, 2 * 512), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, 0, ~0ull << dq.lba_shift, 512), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, RIG_BUFFER, 0, 512), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, RIG_BUFFER - 508, 0, 512), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, ~3ull, 0, 512), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_zero(&dq, 999 * 512, 2 * 512), -GPUNVME_ERANGE);
	dq.flags = 0;
	assert_int_equal(gpunvme_write(&dq, &r->dbuf, 0, 0, 512, 0), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_zero(&dq, 0, 512), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_submit_write(&dq, &r->dbuf, 0, 0, 512, 0, &req), -GPUNVME_EROFS);
	dq.flags = GPUNVME_DQ_WRITE;
	assert_int_equal(gpunvme_zero(&dq, 0, 512), -GPUNVME_EOPNOTSUPP);
	assert_int_equal(gpunvme_submit_zero(&dq, 0, 512, &req), -GPUNVME_EOPNOTSUPP);
	dq.head.version ^= 1;
	assert_int_equal(gpunvme_read(&dq, &r->dbuf, 0, 0, 512), -GPUNVME_EPROTONOSUPPORT);
	assert_int_equal(gpunvme_flush(&dq), -GPUNVME_EPROTONOSUPPORT);
	dq.head.version ^= 1;
	dq.head.version = 0;
	assert_int_equal(gpunvme_poll(&dq, &req), -GPUNVME_EPROTONOSUPPORT);
	assert_int_equal(r->state->resv, 0);
	rig_end(r, true);
}

static void asynchronous_submit_is_one_command(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_dbuf big = r->dbuf;
	struct gpunvme_req req;

	(void)state;
	rig_start(r);
	big.len = 8 << 20;
	r->dq.max_blocks = 65536;
	assert_int_equal(gpunvme_submit_read(&r->dq, &big, 0, 0, (257 * 8 + 1) * 512, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_submit_read(&r->dq, &big, 512, 0, (257 * 8) * 512, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_submit_read(&r->dq, &big, 0, 0, (257 * 8) * 512, &req), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	r->dq.max_blocks = 8;
	assert_int_equal(gpunvme_submit_write(&r->dq, &big, 0, 0, 9 * 512, 0, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_submit_zero(&r->dq, 0, 65537 * 512, &req), -GPUNVME_EMSGSIZE);
	rig_end(r, true);
}

/* A descriptor by which no command has a block: of such a one 65536 would be asked for, again and again. */
static void a_limit_of_nothing_is_one_block(void **state)
{
	struct record record;
	struct gpunvme_req req;
	struct rig *r = recorded(&record);

	(void)state;
	r->dq.max_blocks = 0;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 0, 2 * 512), 0);
	assert_int_equal(gpunvme_wave_write(&r->dq, &r->dbuf, 0, 2 * 512, 2 * 512, GPUNVME_FUA), 0);
	assert_int_equal(gpunvme_wave_read_one(&r->dq, &r->dbuf, 0, 4 * 512, 2 * 512), 0);
	assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, 0, 2 * 512, &req), -GPUNVME_EMSGSIZE);
	r->dq.flags |= 31u << GPUNVME_DQ_ZEROES_SHIFT;
	assert_int_equal(gpunvme_zero(&r->dq, 6 * 512, 2 * 512), 0);
	rig_end(r, true);
	assert_int_equal(record.count, 8);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(record.cmd[i].cdw10, i);
		assert_int_equal(record.cmd[i].cdw12 & 0xffff, 0);
	}
}

/* A controller that sets 1024 blocks by a command is asked for no more. */
static void zeroes_keep_to_the_limit(void **state)
{
	struct record record;
	struct gpunvme_req req;
	struct rig *r = recorded(&record);

	(void)state;
	r->dq.flags |= 6u << GPUNVME_DQ_ZEROES_SHIFT;
	assert_int_equal(gpunvme_submit_zero(&r->dq, 0, 1025 * 512, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_submit_zero(&r->dq, 5000 * 512, 1024 * 512, &req), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	assert_int_equal(gpunvme_zero(&r->dq, 7 * 512, 2050 * 512), 0);
	rig_end(r, true);
	assert_int_equal(record.count, 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(record.cmd[i].opc, GPUNVME_IO_WRITE_ZEROES);
		assert_int_equal(record.cmd[i].cdw10, i ? 7 + (i - 1) * 1024 : 5000);
		assert_int_equal(record.cmd[i].cdw12, i < 3 ? 1023 : 1);
	}
}

static void command_has_the_fields_of_the_specification(void **state)
{
	struct record record;
	struct rig *r = recorded(&record);
	struct gpunvme_sqe *c = record.cmd;
	unsigned i;

	(void)state;
	r->dq.nsid = 5;
	r->dq.lba_first = 0x1200000000ull;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 4096, 0x34 * 512, 3 * 512, 0), 0);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 8, 512, 512), 0);
	assert_int_equal(gpunvme_flush(&r->dq), 0);
	assert_int_equal(gpunvme_zero(&r->dq, 7 * 512, 65536 * 512), 0);
	rig_end(r, true);
	assert_int_equal(record.count, 4);
	assert_int_equal(c[0].opc, GPUNVME_IO_WRITE);
	assert_int_equal(c[1].opc, GPUNVME_IO_READ);
	assert_int_equal(c[2].opc, GPUNVME_IO_FLUSH);
	assert_int_equal(c[3].opc, GPUNVME_IO_WRITE_ZEROES);
	assert_int_equal(c[0].cdw10, 0x34);
	assert_int_equal(c[0].cdw11, 0x12);
	assert_int_equal(c[0].cdw12, 2);
	assert_int_equal(c[0].prp1, RIG_IOVA + 4096);
	assert_int_equal(c[1].prp1, RIG_IOVA + 8);
	assert_int_equal(c[3].cdw12, 65535);
	assert_int_equal(c[2].prp1 | c[2].cdw10 | c[2].cdw12 | c[3].prp1, 0);
	for (i = 0; i < 4; i++) {
		assert_int_equal(c[i].nsid, 5);
		assert_int_equal(c[i].flags | c[i].prp2 | c[i].mptr | c[i].cdw2 | c[i].cdw3 | c[i].cdw13 | c[i].cdw14 | c[i].cdw15, 0);
	}
}

/* Positions and lengths are bytes, of which every front wants whole blocks; none rounds, and none loses high bits. */
static void no_whole_blocks_are_refused(void **state)
{
	static const struct {
		uint64_t pos, len;
		int want;
	} cases[] = {
		{ 1, 512, -GPUNVME_EINVAL },	      { 0, 511, -GPUNVME_EINVAL },
		{ 0, 513, -GPUNVME_EINVAL },	      { 256, 256, -GPUNVME_EINVAL },
		{ ~0ull, 1, -GPUNVME_EINVAL },	      { 0, 0, -GPUNVME_EINVAL },
		{ 0, 1ull << 41, -GPUNVME_ERANGE },   { 0, (1ull << 41) + 512, -GPUNVME_ERANGE },
		{ 1ull << 41, 512, -GPUNVME_ERANGE }, { ~511ull, 512, -GPUNVME_ERANGE },
		{ ~511ull, 1024, -GPUNVME_ERANGE },   { 512, ~511ull, -GPUNVME_ERANGE },
	};
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req req;
	uint32_t i;

	(void)state;
	rig_start(r);
	r->dq.lba_count = 1000;
	r->dq.flags |= GPUNVME_DQ_WRITE_ZEROES;
	r->dq.deallocate = 1000;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint64_t pos = cases[i].pos, len = cases[i].len;

		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, pos, len), cases[i].want);
		assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, pos, len, 0), cases[i].want);
		assert_int_equal(gpunvme_zero(&r->dq, pos, len), cases[i].want);
		assert_int_equal(gpunvme_discard(&r->dq, &r->dbuf, 0, pos, len), cases[i].want);
		assert_int_equal(gpunvme_wave_read(&r->dq, &r->dbuf, 0, pos, len), cases[i].want);
		assert_int_equal(gpunvme_wave_write(&r->dq, &r->dbuf, 0, pos, len, 0), cases[i].want);
		assert_int_equal(gpunvme_wave_read_one(&r->dq, &r->dbuf, 0, pos, len), cases[i].want);
		assert_int_equal(gpunvme_wave_write_one(&r->dq, &r->dbuf, 0, pos, len, 0), cases[i].want);
		assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, pos, len, &req), cases[i].want);
		assert_int_equal(gpunvme_submit_write(&r->dq, &r->dbuf, 0, pos, len, 0, &req), cases[i].want);
		assert_int_equal(gpunvme_submit_zero(&r->dq, pos, len, &req), cases[i].want);
		assert_int_equal(gpunvme_submit_discard(&r->dq, &r->dbuf, 0, pos, len, &req), cases[i].want);
	}
	assert_int_equal(r->state->resv, 0);
	rig_end(r, true);
}

/* A flag that this header does not know is refused by each way to write, whatever else is right. */
static void unknown_flags_are_refused(void **state)
{
	static const uint32_t flags[] = { 1, 1u << 31, GPUNVME_FUA | 2, ~0u };
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req req;
	uint32_t i;

	(void)state;
	rig_start(r);
	for (i = 0; i < 4; i++) {
		assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 0, 512, flags[i]), -GPUNVME_EINVAL);
		assert_int_equal(gpunvme_wave_write(&r->dq, &r->dbuf, 0, 0, 512, flags[i]), -GPUNVME_EINVAL);
		assert_int_equal(gpunvme_wave_write_one(&r->dq, &r->dbuf, 0, 0, 512, flags[i]), -GPUNVME_EINVAL);
		assert_int_equal(gpunvme_submit_write(&r->dq, &r->dbuf, 0, 0, 512, flags[i], &req), -GPUNVME_EINVAL);
	}
	assert_int_equal(r->state->resv, 0);
	rig_end(r, true);
}

/* Every part of a transfer asks for the media, by each way to write. */
static void forced_writes_say_so(void **state)
{
	struct record record;
	struct rig *r = recorded(&record);
	struct gpunvme_req req;
	uint32_t i;

	(void)state;
	r->dq.max_blocks = 8;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 5 * 512, 20 * 512, GPUNVME_FUA), 0);
	assert_int_equal(gpunvme_submit_write(&r->dq, &r->dbuf, 0, 5 * 512, 8 * 512, GPUNVME_FUA, &req), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	assert_int_equal(gpunvme_wave_write(&r->dq, &r->dbuf, 0, 5 * 512, 8 * 512, GPUNVME_FUA), 0);
	assert_int_equal(gpunvme_wave_write_one(&r->dq, &r->dbuf, 0, 5 * 512, 8 * 512, GPUNVME_FUA), 0);
	r->dq.flags = 0;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 5 * 512, 20 * 512, GPUNVME_FUA), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_submit_write(&r->dq, &r->dbuf, 0, 5 * 512, 8 * 512, GPUNVME_FUA, &req), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_wave_write(&r->dq, &r->dbuf, 0, 5 * 512, 8 * 512, GPUNVME_FUA), -GPUNVME_EROFS);
	rig_end(r, true);
	assert_int_equal(record.count, 6);
	for (i = 0; i < 6; i++) {
		assert_int_equal(record.cmd[i].opc, GPUNVME_IO_WRITE);
		assert_int_equal(record.cmd[i].flags, 0);
		assert_int_equal(record.cmd[i].cdw12, GPUNVME_RW_FUA | (i == 2 ? 3 : 7));
	}
}

static void is_deallocation(const struct record *record, uint32_t i, uint64_t slba, uint32_t nblocks)
{
	const struct gpunvme_sqe *c = &record->cmd[i];

	assert_int_equal(c->opc, GPUNVME_IO_DSM);
	assert_int_equal(c->nsid, 1);
	assert_int_equal(c->prp1, RIG_IOVA + 16);
	assert_int_equal(c->cdw10, 0);
	assert_int_equal(c->cdw11, GPUNVME_DSM_AD);
	assert_int_equal(c->flags | c->prp2 | c->mptr | c->cdw2 | c->cdw3 | c->cdw12 | c->cdw13 | c->cdw14 | c->cdw15, 0);
	assert_int_equal(record->range[i].attributes, 0);
	assert_int_equal(record->range[i].nlb, nblocks);
	assert_int_equal(record->range[i].slba, slba);
}

/* The range stands in the buffer before the controller fetches the command, and no command has more than it may have. */
static void deallocation_is_a_range_in_the_buffer(void **state)
{
	struct gpunvme_dsm_range room[4];
	struct gpunvme_dbuf dbuf = { (uintptr_t)room, sizeof(room), RIG_IOVA, 0, 0 };
	struct record record;
	struct rig *r = recorded(&record);
	struct gpunvme_req req;

	(void)state;
	memset(room, 0xee, sizeof(room));
	record.at = &room[1];
	r->dq.lba_first = 0x1200000000ull;
	r->dq.deallocate = 1000;
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 16, 7 * 512, 2100 * 512), 0);
	assert_int_equal(gpunvme_submit_discard(&r->dq, &dbuf, 16, 9 * 512, 1000 * 512, &req), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	rig_end(r, true);
	assert_int_equal(record.count, 4);
	is_deallocation(&record, 0, 0x1200000007ull, 1000);
	is_deallocation(&record, 1, 0x1200000007ull + 1000, 1000);
	is_deallocation(&record, 2, 0x1200000007ull + 2000, 100);
	is_deallocation(&record, 3, 0x1200000009ull, 1000);
	assert_int_equal(room[0].nlb & room[2].nlb, 0xeeeeeeee);
}

/* 2^32 blocks are refused, and not taken for none; one less is as many commands as it takes. */
static void lengths_above_32_bits_are_refused(void **state)
{
	struct gpunvme_dsm_range room[2];
	struct gpunvme_dbuf dbuf = { (uintptr_t)room, sizeof(room), RIG_IOVA, 0, 0 };
	struct record record;
	struct rig *r = recorded(&record);
	struct gpunvme_req req;
	uint32_t i;

	(void)state;
	record.at = &room[1];
	r->dq.lba_count = 1ull << 40;
	r->dq.deallocate = 1u << 31;
	r->dq.flags |= GPUNVME_DQ_WRITE_ZEROES;
	dbuf.len = ~0ull;
	for (i = 0; i < 2; i++) {
		const uint64_t len = ((1ull << 32) + i) * 512;

		assert_int_equal(gpunvme_read(&r->dq, &dbuf, 0, 0, len), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_write(&r->dq, &dbuf, 0, 0, len, 0), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_zero(&r->dq, 0, len), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 0, 0, len), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_wave_read(&r->dq, &dbuf, 0, 0, len), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_wave_write(&r->dq, &dbuf, 0, 0, len, 0), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_wave_read_one(&r->dq, &dbuf, 0, 0, len), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_wave_write_one(&r->dq, &dbuf, 0, 0, len, 0), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_submit_write(&r->dq, &dbuf, 0, 0, len, 0, &req), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_submit_read(&r->dq, &dbuf, 0, 0, len, &req), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_submit_zero(&r->dq, 0, len, &req), -GPUNVME_EMSGSIZE);
		assert_int_equal(gpunvme_submit_discard(&r->dq, &dbuf, 0, 0, len, &req), -GPUNVME_EMSGSIZE);
	}
	assert_int_equal(r->state->resv, 0);
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 16, 7 * 512, 0xffffffffull * 512), 0);
	rig_end(r, true);
	assert_int_equal(record.count, 2);
	is_deallocation(&record, 0, 7, 1u << 31);
	is_deallocation(&record, 1, 7 + (1ull << 31), 0x7fffffff);
}

static void deallocation_is_refused(void **state)
{
	struct gpunvme_dsm_range room[1];
	struct gpunvme_dbuf dbuf = { (uintptr_t)room, sizeof(room), RIG_IOVA, 0, 0 };
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req req;

	(void)state;
	rig_start(r);
	r->dq.lba_count = 1000;
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 0, 0, 512), -GPUNVME_EOPNOTSUPP);
	assert_int_equal(gpunvme_submit_discard(&r->dq, &dbuf, 0, 0, 512, &req), -GPUNVME_EOPNOTSUPP);
	r->dq.deallocate = 100;
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 0, 0, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 0, 999 * 512, 2 * 512), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 4, 0, 512), -GPUNVME_ERANGE); /* no room for a range */
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 2, 0, 512), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_submit_discard(&r->dq, &dbuf, 0, 0, 101 * 512, &req), -GPUNVME_EMSGSIZE);
	r->dq.flags &= ~(uint32_t)GPUNVME_DQ_WRITE;
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 0, 0, 512), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_submit_discard(&r->dq, &dbuf, 0, 0, 512, &req), -GPUNVME_EROFS);
	r->dq.head.version ^= 1;
	assert_int_equal(gpunvme_discard(&r->dq, &dbuf, 0, 0, 512), -GPUNVME_EPROTONOSUPPORT);
	assert_int_equal(r->state->resv, 0);
	rig_end(r, true);
}

/* The tables as the host builds them, as a controller would read them. */
static uint64_t entry_at(const struct gpunvme_dbuf *b, uint64_t list)
{
	uint64_t base = list >= b->prp_b ? b->prp_b : b->prp_a;

	return (b->iova & ~(PAGE - 1)) + (list - base) / 8 * PAGE;
}

/* Walk PRP1, PRP2 as the Base Specification says (4.1.1) and compare with the bytes that were asked for. */
static void check_prps(const struct gpunvme_dbuf *b, const struct gnvd_cmd *c, uint64_t offset, uint64_t bytes)
{
	uint64_t addr = b->iova + offset, left, list = c->prp2, page;

	assert_int_equal(c->prp1, addr);
	left = PAGE - (addr & (PAGE - 1));
	if (left >= bytes) {
		assert_int_equal(c->prp2, 0);
		return;
	}
	bytes -= left;
	page = (addr & ~(PAGE - 1)) + PAGE;
	if (bytes <= PAGE) {
		assert_int_equal(c->prp2, page);
		return;
	}
	for (;; bytes -= PAGE, page += PAGE, list += 8) {
		assert_int_equal(list & 7, 0);
		/* The last entry of a list page would be taken for a chain pointer if more than one page were left. */
		assert_true((list & (PAGE - 1)) != PAGE - 8 || bytes <= PAGE);
		assert_int_equal(entry_at(b, list), page);
		if (bytes <= PAGE)
			return;
	}
}

static void every_transfer_has_its_prp_list_unbroken(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_dbuf b = { 0, 16u << 20, RIG_IOVA, 0x5a00000020000000ull, 0x5a00000030000000ull + PAGE / 2 };
	uint64_t first, inner;
	uint32_t pages;

	(void)state;
	r->dq.max_blocks = 65536;
	for (first = 0; first < 1100; first++) {
		for (inner = 0; inner < PAGE; inner += 1364) {
			static const uint32_t sizes[] = { 1, 2, 3, 4, 128, 255, 256, 257 };
			unsigned i;

			for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
				struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
				uint64_t offset = first * PAGE + inner;

				pages = gnvd_blocks_per_command(&r->dq, RIG_IOVA + offset, sizes[i] * 8);
				gnvd_set_data(&r->dq, &b, offset, pages * 512ull, &c);
				check_prps(&b, &c, offset, pages * 512ull);
			}
		}
	}
	rig_start(r);
	rig_end(r, true);
}

static void sgl_describes_the_whole_transfer(void **state)
{
	struct record record;
	struct rig *r = recorded(&record);

	(void)state;
	r->dq.flags |= GPUNVME_DQ_SGL;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 4, 0, 2000 * 512), 0);
	rig_end(r, true);
	assert_int_equal(record.count, 1);
	assert_int_equal(record.cmd[0].flags, GPUNVME_PSDT_SGL);
	assert_int_equal(record.cmd[0].prp1, RIG_IOVA + 4);
	assert_int_equal(record.cmd[0].prp2, 2000 * 512);
}

static void transfer_is_split_by_the_limit(void **state)
{
	struct record record;
	struct rig *r = recorded(&record);
	uint64_t lba = 0, i;

	(void)state;
	r->dq.max_blocks = 100;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 50 * 512, 1234 * 512), 0);
	rig_end(r, true);
	assert_int_equal(record.count, 13);
	for (i = 0; i < record.count; i++) {
		assert_int_equal(record.cmd[i].cdw10, 50 + lba);
		assert_int_equal(record.cmd[i].prp1, RIG_IOVA + lba * 512);
		lba += record.cmd[i].cdw12 + 1;
	}
	assert_int_equal(lba, 1234);
}

/* The blocks of the commands that a transfer becomes, which follow one another. */
static void is_cut(const struct record *record, uint64_t slba, const uint32_t *want, uint32_t count)
{
	uint64_t bytes = 0;
	uint32_t i;

	assert_int_equal(record->count, count);
	for (i = 0; i < count; i++) {
		assert_int_equal(record->cmd[i].cdw10 | (uint64_t)record->cmd[i].cdw11 << 32, slba + bytes / 512);
		assert_int_equal((record->cmd[i].cdw12 & GPUNVME_RW_NLB_0B) + 1, want[i]);
		assert_int_equal(record->cmd[i].prp1, RIG_IOVA + bytes);
		bytes += want[i] * 512ull;
	}
}

/* Boundaries count from the first block of the namespace, not of the view. */
static void transfer_is_cut_at_the_boundary(void **state)
{
	static const uint32_t parts[] = { 106, 256, 256, 256, 126 }, few[] = { 100, 6, 100, 100, 44 };
	struct record record;
	struct rig *r = recorded(&record);

	(void)state;
	r->dq.lba_first = 100;
	r->dq.boundary = -256u;
	r->dq.atomic = 1;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 50 * 512, 1000 * 512), 0);
	is_cut(&record, 150, parts, 5);
	record.count = 0;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 50 * 512, 1000 * 512, 0), 0);
	is_cut(&record, 150, parts, 5);
	record.count = 0;
	r->dq.max_blocks = 100;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 50 * 512, 350 * 512), 0);
	is_cut(&record, 150, few, 5);
	rig_end(r, true);
}

/* What the drive writes whole stays one command, unless the boundary is where it does not. */
static void whole_writes_are_not_cut(void **state)
{
	static const uint32_t whole[] = { 32 }, cut[] = { 6, 26 }, larger[] = { 6, 27 }, one[] = { 33 }, far[] = { 4, 28 };
	struct record record;
	struct rig *r = recorded(&record);
	struct gpunvme_req req;

	(void)state;
	r->dq.boundary = -256u;
	r->dq.atomic = 32;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 250 * 512, 32 * 512, 0), 0);
	is_cut(&record, 250, whole, 1);
	record.count = 0;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 250 * 512, 32 * 512), 0);
	is_cut(&record, 250, cut, 2);
	record.count = 0;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 250 * 512, 33 * 512, 0), 0);
	is_cut(&record, 250, larger, 2);
	record.count = 0;
	assert_int_equal(gpunvme_submit_write(&r->dq, &r->dbuf, 0, 250 * 512, 33 * 512, 0, &req), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	is_cut(&record, 250, one, 1);
	record.count = 0;
	r->dq.flags |= GPUNVME_DQ_TORN;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 250 * 512, 32 * 512, 0), 0);
	is_cut(&record, 250, cut, 2);
	record.count = 0;
	r->dq.flags &= ~(uint32_t)GPUNVME_DQ_TORN;
	r->dq.boundary = 0;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 0xfffffffcull * 512, 32 * 512, 0), 0);
	is_cut(&record, 0xfffffffc, whole, 1);
	record.count = 0;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 0xfffffffcull * 512, 32 * 512), 0);
	is_cut(&record, 0xfffffffc, far, 2); /* needless and harmless */
	rig_end(r, true);
}

static uint16_t fail_from_300(uint64_t stamp)
{
	return stamp >= 300 ? (uint16_t)(0x4000 | (stamp / 100)) : 0;
}

static void first_failure_in_lba_order_is_returned(void **state)
{
	struct record record;
	struct rig *r = recorded(&record);

	(void)state;
	r->ctrl.opts.status = fail_from_300;
	r->dq.max_blocks = 100;
	assert_int_equal(gpunvme_write(&r->dq, &r->dbuf, 0, 0, 1000 * 512, 0), 0x4003);
	rig_end(r, true);
}

/* A status whose code is zero is a success, whatever its other bits say. */
static uint16_t success_with_bits(uint64_t stamp)
{
	(void)stamp;
	return 0x3800;
}

static void success_ignores_retry_bits(void **state)
{
	struct rig *r = rig_new(2, 0);

	(void)state;
	r->ctrl.opts.status = success_with_bits;
	rig_start(r);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 0, 512), 0);
	rig_end(r, true);
}

struct pair {
	const struct gpunvme_dq *dq[2];
	const struct gpunvme_dbuf *dbuf;
	uint32_t wrong;
};

static GPUNVME_DEVICE uint16_t fail_odd(uint64_t stamp)
{
	return stamp & 1 ? GPUNVME_SC_LBA_RANGE : 0;
}

/* Threads of one wave on different queues. */
static GPUNVME_DEVICE void read_alternating(void *arg)
{
	struct pair *p = (struct pair *)arg;
	unsigned i;

	for (i = 0; i < 40; i++) {
		const struct gpunvme_dq *dq = p->dq[(gpunvme_thread_id() + i / 3) & 1];
		uint64_t stamp = gpunvme_thread_id() * 1000 + i;

		if (gpunvme_read(dq, p->dbuf, 0, stamp * 512, 512) != fail_odd(stamp))
			__atomic_fetch_add(&p->wrong, 1, __ATOMIC_RELAXED);
	}
}

static void lanes_of_a_wave_may_use_different_queues(void **state)
{
	struct rig *rig[2] = { rig_new(3, 0), rig_new(5, 0) };
	struct pair p = { { &rig[0]->dq, &rig[1]->dq }, &rig[0]->dbuf, 0 };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		rig[i]->ctrl.opts.status = fail_odd;
		rig_start(rig[i]);
	}
	assert_int_equal(gpunvme_cpu_launch(8, 4, read_alternating, &p), 0);
	assert_int_equal(p.wrong, 0);
	assert_int_equal(rig[0]->state->resv + rig[1]->state->resv, 320);
	rig_end(rig[0], true);
	rig_end(rig[1], true);
}

static GPUNVME_DEVICE void no_kernel(void *arg)
{
	(void)arg;
}

static void launcher_refuses_nonsense(void **state)
{
	(void)state;
	assert_int_equal(gpunvme_cpu_launch(0, 1, no_kernel, NULL), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_cpu_launch(1, 0, no_kernel, NULL), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_cpu_launch(1, 33, no_kernel, NULL), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_cpu_launch(1, 1, NULL, NULL), -GPUNVME_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_arguments_are_refused),
		cmocka_unit_test(asynchronous_submit_is_one_command),
		cmocka_unit_test(command_has_the_fields_of_the_specification),
		cmocka_unit_test(a_limit_of_nothing_is_one_block),
		cmocka_unit_test(zeroes_keep_to_the_limit),
		cmocka_unit_test(no_whole_blocks_are_refused),
		cmocka_unit_test(unknown_flags_are_refused),
		cmocka_unit_test(forced_writes_say_so),
		cmocka_unit_test(deallocation_is_a_range_in_the_buffer),
		cmocka_unit_test(lengths_above_32_bits_are_refused),
		cmocka_unit_test(deallocation_is_refused),
		cmocka_unit_test(every_transfer_has_its_prp_list_unbroken),
		cmocka_unit_test(sgl_describes_the_whole_transfer),
		cmocka_unit_test(transfer_is_split_by_the_limit),
		cmocka_unit_test(transfer_is_cut_at_the_boundary),
		cmocka_unit_test(whole_writes_are_not_cut),
		cmocka_unit_test(first_failure_in_lba_order_is_returned),
		cmocka_unit_test(success_ignores_retry_bits),
		cmocka_unit_test(lanes_of_a_wave_may_use_different_queues),
		cmocka_unit_test(launcher_refuses_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
