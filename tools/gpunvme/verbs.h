/* SPDX-License-Identifier: MIT */
/*
 * The verbs of the gpunvme command: `gpunvme VERB URI [options]`. A verb is one file and one line in main.c.
 * Each takes the arguments after its name and returns an exit code. Options, sessions and error lines are those of the
 * examples (examples/common).
 */
#ifndef GPUNVME_VERBS_H
#define GPUNVME_VERBS_H

#include "common/session.h"

int verb_list(int argc, char **argv);
int verb_bind(int argc, char **argv);
int verb_unbind(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_identify(int argc, char **argv);
int verb_read(int argc, char **argv);
int verb_write(int argc, char **argv);
int verb_discard(int argc, char **argv);
int verb_extents(int argc, char **argv);
int verb_unlease(int argc, char **argv);
int verb_ls(int argc, char **argv);
int verb_cat(int argc, char **argv);
int verb_ordering_test(int argc, char **argv);
int verb_faults(int argc, char **argv);
int verb_coherence(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_serve(int argc, char **argv);
int verb_soak(int argc, char **argv);
int verb_qualify(int argc, char **argv);

#endif
