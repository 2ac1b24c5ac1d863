/* SPDX-License-Identifier: MIT */
#ifndef TESTS_DEVICE_SCHEDULE_PARTS_H
#define TESTS_DEVICE_SCHEDULE_PARTS_H

/* Each runs its seeds, or the one of argv[1]. Return: the exit status; a failure ends the program. */
int schedule_queue(int argc, char **argv);
int schedule_pages(int argc, char **argv);
int schedule_changes(int argc, char **argv);

#endif
