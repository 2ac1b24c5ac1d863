/* SPDX-License-Identifier: MIT */
/* An eventfd. */
#ifndef GNV_OS_LINUX_EVENT_H
#define GNV_OS_LINUX_EVENT_H

/* Return: a descriptor, or a negative errno. */
int gnv_event_open(void);
void gnv_event_set(int fd);
void gnv_event_clear(int fd);
void gnv_event_close(int fd);

#endif
