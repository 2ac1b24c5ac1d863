/* SPDX-License-Identifier: MIT */
/*
 * A completion thread: a CPU thread that takes the completions of queue pairs, so that no other thread has to wait for them.
 * Invariant: it uses a view only until it was asked for new ones, and none while it is paused.
 */
#ifndef GNV_RUN_COMPLETIONS_H
#define GNV_RUN_COMPLETIONS_H

#include <gpunvme/dq.h>

struct gnv_completions;

/* Fill @dq with views of the pairs as they are now. Return: how many. */
typedef uint32_t gnv_completions_fn(void *ctx, struct gpunvme_dq *dq);

/*
 * gnv_completions_start() - start a completion thread
 * @most: views that @views fills at most
 * Return: 0, -ENOMEM, -EAGAIN.
 */
int gnv_completions_start(uint32_t most, gnv_completions_fn *views, void *ctx, struct gnv_completions **out);

/* All that follow ignore NULL. */

/* The pairs have changed: take new views soon. Old ones may be in use until then. */
void gnv_completions_renew(struct gnv_completions *c);

/* After the first the thread uses no view, until as many calls of the second have come. */
void gnv_completions_pause(struct gnv_completions *c);
void gnv_completions_resume(struct gnv_completions *c);

/* End the thread, and wait until it has ended. May come several times, and from several threads. */
void gnv_completions_end(struct gnv_completions *c);

/* End it, and free what it had. */
void gnv_completions_free(struct gnv_completions *c);

#endif
