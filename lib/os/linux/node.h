/* SPDX-License-Identifier: MIT */
/* The owners and rights of device nodes. */
#ifndef GNV_OS_LINUX_NODE_H
#define GNV_OS_LINUX_NODE_H

/* The group of users of shared nodes, which give access to no device. The udev rule (tools/gpunvme) has the same name. */
#define GNV_NODE_GROUP "gpunvme"

/* Is there such a user, and, but for root, in that group? Return: 0, -ENOENT, -EPERM; gnv_fail() has the message. */
int gnv_node_user(const char *user);

/* Give the node to the user. A node that does not exist is ignored. Return: 0; -ENOENT no such user; -errno. */
int gnv_node_give(const char *path, const char *user);

/* Let members of the group open it. Do nothing if all users may already, or if it does not exist. Return: 0 or -errno. */
int gnv_node_admit(const char *path);

#endif
