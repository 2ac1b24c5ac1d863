/* SPDX-License-Identifier: MIT */
/*
 * Identifiers that a thread on its own, or a whole wave, asks for without a look at the map: it has all that it asked for, or keeps
 * none of these; and which completions are a wave's. Threads come together too seldom for a wave of 32 to do so in the other tests,
 * so its leader is called by hand.
 */
#include "rig.h"

/* 64 entries and 95 identifiers; a wave's hint of 0 begins with number 0. */
static void half_a_word_is_whole_or_given_back(void **state)
{
	struct gnvd_grant whole = { 0 }, full = { 0 }, looked = { 0 };
	struct gnvd_wave w = { .mask = 0xffffffffull, .count = 32 };
	struct rig *r = rig_new(6, 0);

	(void)state;
	gnvd_reserve(&r->dq, &w, 32, &whole);
	assert_true(whole.cids == 0xffffffffull && !whole.base && !whole.pos);
	assert_int_equal(rig_free_cids(r), r->dq.cids - 32);
	gnvd_free_cids(&r->dq, 0, 0xffffff00ull); /* eight stay taken */
	gnvd_reserve(&r->dq, &w, 32, &full); /* 31 places are left */
	assert_true(!full.cids && r->state->resv == 32);
	assert_int_equal(rig_free_cids(r), r->dq.cids - 8);
	r->state->pub = r->state->fetched = 32;
	gnvd_reserve(&r->dq, &w, 32, &looked);
	assert_true(looked.cids == 0xffffffffull << 8 && !looked.base && looked.pos == 32);
	assert_int_equal(rig_free_cids(r), r->dq.cids - 40);
	rig_free(r);
}

static void fewer_than_a_whole_wave_look_first(void **state)
{
	struct gnvd_wave w = { .mask = 0xffffffffull, .count = 32 };
	struct gnvd_grant some = { 0 };
	struct rig *r = rig_new(6, 0);

	(void)state;
	r->cid_map[0] = 0xff0f0ull;
	gnvd_reserve(&r->dq, &w, 5, &some);
	assert_true(some.cids == 0x10f0ull && !some.base);
	assert_int_equal(r->cid_map[0], 0xfe000ull);
	rig_free(r);
}

static void one_identifier_is_had_or_another(void **state)
{
	struct gnvd_grant one = { 0 }, other = { 0 }, full = { 0 };
	struct gnvd_wave w = { .mask = 1, .count = 1 };
	struct rig *r = rig_new(1, 0);

	(void)state;
	gnvd_reserve(&r->dq, &w, 1, &one);
	assert_true(one.cids == 1 && !one.pos);
	r->state->pub = r->state->fetched = 1;
	gnvd_reserve(&r->dq, &w, 1, &other);
	assert_true(other.cids == 2 && other.pos == 1);
	gnvd_free_cids(&r->dq, 0, 1);
	gnvd_reserve(&r->dq, &w, 1, &full);
	assert_true(!full.cids);
	assert_int_equal(r->cid_map[0], 1);
	rig_free(r);
}

/* A queue that has ended gives nothing and keeps nothing. */
static void nothing_of_a_queue_that_is_over(void **state)
{
	struct gnvd_wave lane = { .mask = 1, .count = 1 }, wave = { .mask = 0xffffffffull, .count = 32 };
	struct gnvd_grant one = { 0 }, many = { 0 };
	struct rig *r = rig_new(6, 0);

	(void)state;
	r->state->poison = GPUNVME_ETIMEDOUT;
	gnvd_reserve(&r->dq, &lane, 1, &one);
	gnvd_reserve(&r->dq, &wave, 32, &many);
	assert_true(!one.cids && !many.cids && !r->state->resv);
	assert_int_equal(rig_free_cids(r), r->dq.cids);
	rig_free(r);
}

/* What it waits for is its own: of a wave of 64 the 65th command from its first on is another's. */
static void a_wave_owns_no_more_than_its_lanes(void **state)
{
	const struct gpunvme_dq dq = { .cid_gens = GPUNVME_CID_GENS & 0xff00 };
	struct gnvd_own own = { .gen = 5ull << GPUNVME_RES_GEN_SHIFT, .lanes = ~0ull, .cid = 3 };

	(void)state;
	for (uint32_t rank = 0; rank < 130; rank++)
		assert_int_equal(gnvd_owner(&dq, &own, (3 + rank) | GPUNVME_CID_GEN(dq.cid_gens, 5 + rank)),
				 rank < 64 ? rank : GNVD_NOBODY);
	assert_int_equal(gnvd_owner(&dq, &own, 2 | GPUNVME_CID_GEN(dq.cid_gens, 4)), GNVD_NOBODY);
	own.lanes = 0xf0;
	assert_int_equal(gnvd_owner(&dq, &own, (3 + 4) | GPUNVME_CID_GEN(dq.cid_gens, 9)), 4);
	assert_int_equal(gnvd_owner(&dq, &own, (3 + 4) | GPUNVME_CID_GEN(dq.cid_gens, 10)), GNVD_NOBODY);
	assert_int_equal(gnvd_owner(&dq, &own, (3 + 3) | GPUNVME_CID_GEN(dq.cid_gens, 8)), GNVD_NOBODY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_a_word_is_whole_or_given_back),
		cmocka_unit_test(fewer_than_a_whole_wave_look_first),
		cmocka_unit_test(one_identifier_is_had_or_another),
		cmocka_unit_test(nothing_of_a_queue_that_is_over),
		cmocka_unit_test(a_wave_owns_no_more_than_its_lanes),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
