/* SPDX-License-Identifier: MIT */
#include "pause.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct lane {
	pthread_t thread;
	struct lane *next;
};

static _Thread_local struct lane self;
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER; /* protects lanes */
static struct lane *lanes;
static uint64_t resume_at; /* atomic; CLOCK_MONOTONIC in ns */

static void stand_still(int signal)
{
	const uint64_t at = __atomic_load_n(&resume_at, __ATOMIC_RELAXED);
	const struct timespec until = { (time_t)(at / 1000000000), (long)(at % 1000000000) };
	int err = errno;

	(void)signal;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
	errno = err;
}

void mock_lane(bool begins)
{
	struct lane **link;

	pthread_mutex_lock(&lanes_lock);
	for (link = &lanes; *link && *link != &self; link = &(*link)->next)
		;
	if (*link)
		*link = self.next;
	if (begins) {
		self = (struct lane){ pthread_self(), lanes };
		lanes = &self;
	}
	pthread_mutex_unlock(&lanes_lock);
	if (begins)
		stand_still(0);
}

unsigned mock_evict(unsigned ms)
{
	const struct sigaction action = { .sa_handler = stand_still, .sa_flags = SA_RESTART };
	const struct lane *lane;
	struct timespec now;
	unsigned stopped = 0;

	clock_gettime(CLOCK_MONOTONIC, &now);
	__atomic_store_n(&resume_at, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + ms * 1000000ull, __ATOMIC_RELAXED);
	pthread_mutex_lock(&lanes_lock);
	sigaction(SIGUSR2, &action, NULL);
	for (lane = lanes; lane; lane = lane->next)
		stopped += !pthread_kill(lane->thread, SIGUSR2);
	pthread_mutex_unlock(&lanes_lock);
	return stopped;
}

static pthread_t pauser;
static bool pausing; /* atomic */

static void *pause_main(void *arg)
{
	const unsigned most = mock_number("MOCK_PAUSES", 0);
	unsigned seed = 1;

	(void)arg;
	while (__atomic_load_n(&pausing, __ATOMIC_RELAXED)) {
		usleep((useconds_t)rand_r(&seed) % 20000);
		mock_evict((unsigned)rand_r(&seed) % most);
	}
	return NULL;
}

void mock_pauses(bool begin)
{
	if (begin ? !mock_number("MOCK_PAUSES", 0) : !pausing)
		return;
	__atomic_store_n(&pausing, begin, __ATOMIC_RELAXED);
	if (!begin)
		pthread_join(pauser, NULL);
	else if (pthread_create(&pauser, NULL, pause_main, NULL))
		pausing = false;
}
