/* SPDX-License-Identifier: MIT */
/* Speeds that a drive reports, except that of its link: how long it takes to wake up. */
#include "qualify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define TRIES 3
#define SLACK_US 1000.0 /* until a thread has begun */

static void sleep_us(uint32_t us)
{
	const struct timespec nap = { us / 1000000, (long)(us % 1000000) * 1000 };

	nanosleep(&nap, NULL);
}

/* The last power state without I/O whose latencies the drive reports, or 0. */
static unsigned deepest(const struct gpunvme_id_ctrl *id)
{
	unsigned state = id->npss_0b < 32 ? id->npss_0b : 31;

	while (state && !(id->psd[state].flags & GPUNVME_PSD_NOPS && id->psd[state].exlat))
		state--;
	return state;
}

static int time_read(struct qualify *a, double *us)
{
	const double start = now_s();
	const int status = qualify_move(a, QUALIFY_READ, 0, 0, a->page_blocks, a->page_blocks);

	*us = (now_s() - start) * 1e6;
	return status;
}

/* The best of some tries: one is chance. */
static int time_wake(struct qualify *a, unsigned state, uint32_t enlat, double *awake, double *woken)
{
	int ret = 0;

	for (unsigned i = 0; i < TRIES && !ret; i++) {
		double warm = 0, us = 0;

		ret = time_read(a, &warm);
		if (!ret)
			ret = gpunvme_dev_set_feature(a->s.dev, GPUNVME_FID_POWER, state);
		sleep_us((enlat < 1000000 ? enlat : 1000000) + 10000);
		if (!ret)
			ret = time_read(a, &us);
		*awake = warm > *awake ? warm : *awake;
		*woken = !i || us < *woken ? us : *woken;
	}
	return ret;
}

static int judge(struct qualify *a, const struct gpunvme_power_state *psd, unsigned state, double awake, double woken)
{
	const double claim = (double)psd->enlat + psd->exlat;
	const size_t at = strlen(a->text);

	put_count(a->figures, "wake_state", state);
	put_real(a->figures, "wake_us", woken, 1);
	put_real(a->figures, "wake_claimed_us", claim, 0);
	if (woken <= claim + awake + SLACK_US)
		return QUALIFY_PASSED;
	snprintf(a->text + at, sizeof(a->text) - at, ", from power state %u it wakes up in %.0f us, and claims %.0f", state, woken, claim);
	return QUALIFY_LIMIT;
}

/* Not of a drive that is known not to wake up, and not where only reads are allowed. */
int qualify_claim_wake(struct qualify *a)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = GPUNVME_CNS_CTRL };
	static struct gpunvme_id_ctrl id;
	double awake = 0, woken = 0;
	unsigned state;
	uint32_t was;
	int ret;

	if (!a->write || strstr(a->s.info.quirks, "no-deepest-ps") || gpunvme_dev_admin(a->s.dev, &cmd, &id, sizeof(id), 0, NULL))
		return QUALIFY_PASSED;
	state = deepest(&id);
	if (!state || gpunvme_dev_get_feature(a->s.dev, GPUNVME_FID_POWER, &was) || qualify_open_queue(a, 0))
		return QUALIFY_PASSED;
	ret = time_wake(a, state, id.psd[state].enlat, &awake, &woken);
	gpunvme_dev_set_feature(a->s.dev, GPUNVME_FID_POWER, was);
	if (ret)
		return qualify_fail(a, "reads at power state %u, which it should leave for them: %s", state, qualify_why(ret));
	return judge(a, &id.psd[state], state, awake, woken);
}
