/* SPDX-License-Identifier: MIT */
#include "os/linux/node.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/log.h"

#define GROUPS 1024

static int no_group(const char *user)
{
	return gnv_fail(-ENOENT,
			"there is no group '" GNV_NODE_GROUP
			"', whose members may use the nodes that all drives share. Make it, with %.60s in it: "
			"groupadd --system " GNV_NODE_GROUP " && usermod -aG " GNV_NODE_GROUP " %.60s",
			user, user);
}

int gnv_node_user(const char *name)
{
	const struct passwd *user = getpwnam(name);
	const struct group *group;
	gid_t member[GROUPS], primary, wanted;
	int count = GROUPS;

	if (!user)
		return gnv_fail(-ENOENT, "there is no user '%.60s': name one of `getent passwd`", name);
	if (!user->pw_uid)
		return 0;
	primary = user->pw_gid;
	group = getgrnam(GNV_NODE_GROUP);
	if (!group)
		return no_group(name);
	wanted = group->gr_gid;
	if (getgrouplist(name, primary, member, &count) > 0)
		for (int i = 0; i < count; i++)
			if (member[i] == wanted)
				return 0;
	return gnv_fail(-EPERM,
			"%.60s is not in the group '" GNV_NODE_GROUP
			"', whose members may use the nodes that all drives share. Add this user: usermod "
			"-aG " GNV_NODE_GROUP " %.60s (it counts from their next login)",
			name, name);
}

int gnv_node_give(const char *path, const char *name)
{
	const struct passwd *user = getpwnam(name);

	if (!user)
		return gnv_node_user(name);
	if (chown(path, user->pw_uid, user->pw_gid) && errno != ENOENT)
		return gnv_fail(-errno, "%s cannot be given to %s: %s", path, user->pw_name, strerror(errno));
	return 0;
}

int gnv_node_admit(const char *path)
{
	const struct group *group = getgrnam(GNV_NODE_GROUP);
	struct stat st;

	if (!group || stat(path, &st) || (st.st_mode & 0006) == 0006)
		return 0;
	if (chown(path, (uid_t)-1, group->gr_gid) || chmod(path, (st.st_mode & 07777) | 0060))
		return gnv_fail(-errno, "%s cannot be given to the group " GNV_NODE_GROUP ": %s", path, strerror(errno));
	return 0;
}
