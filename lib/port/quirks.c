/* SPDX-License-Identifier: MIT */
#include "port/quirks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/drives.h"
#include "util/bits.h"
#include "util/log.h"

static const struct {
	const char *word;
	const char *message;
} quirk_words[] = {
	{ "slow-ready", "it must be left alone for two seconds after a reset, which every open and recovery waits for" },
	{ "no-write-zeroes", "its Write Zeroes is broken and not offered to threads" },
	{ "cns-01", "it does not list its namespaces, so each is identified by number" },
	{ "no-descriptors", "it does not list the identifiers of its namespaces, so none is read" },
	{ "garbage-ids", "drives of its model share the identifiers of their namespaces, which are not believed" },
	{ "garbage-nqn", "drives of its model share the name of their subsystem, which is not believed" },
	{ "stripe", "commands that cross a multiple of its largest transfer are slow, so its namespaces report that as their boundary" },
	{ "lists-512", "its PRP lists begin at multiples of 512 bytes" },
	{ "addr-48", "its addresses have 48 bits, so IOVAs stay below 2^48" },
	{ "medium-prio", "its submission queues are made with medium priority" },
	{ "no-deepest-ps", "it may not come back from its deepest power state, and is kept from changing its power state by itself" },
	{ "one-command", "it loses data with more than one command in flight" },
	{ "sqe-128", "its submission queues have entries of 128 bytes" },
	{ "shared-tags", "its queues share their command identifiers with the admin queue" },
	{ "few-cids", "it takes no command identifiers above the depth of a queue, so a duplicate completion may end another command" },
};

int gnv_quirks_refuse(const struct gnv_drive *drive)
{
	const uint32_t bad = drive->quirks & GNV_QUIRKS_REFUSED;

	if (!bad)
		return 0;
	return gnv_fail(-EOPNOTSUPP,
			"%s cannot be driven by this library: %s. Use another drive (GPUNVME_QUIRKS=none ignores this)",
			drive->name[0] ? drive->name : "the drive", gnv_quirk_message(bad));
}

const char *gnv_quirk_message(uint32_t quirks)
{
	return quirks ? quirk_words[__builtin_ctz(quirks)].message : "";
}

void gnv_quirks_text(uint32_t quirks, char text[GNV_QUIRKS_TEXT])
{
	size_t i, at = 0;

	text[0] = 0;
	for (i = 0; i < GNV_ARRAY_LEN(quirk_words); i++)
		if (quirks >> i & 1)
			at += (size_t)snprintf(text + at, GNV_QUIRKS_TEXT - at, "%s%s", at ? "," : "", quirk_words[i].word);
}

/* ---- Words ---- */

static bool is_word(const char *text, size_t len, const char *word)
{
	return strlen(word) == len && !memcmp(text, word, len);
}

static int bad_word(const char *text, size_t len)
{
	char valid[GNV_QUIRKS_TEXT];

	gnv_quirks_text(~0u, valid);
	return gnv_fail(-EINVAL, "GPUNVME_QUIRKS: \"%.*s\" is no quirk. Valid: none,%s, for one drive VVVV:DDDD=...",
			(int)gnv_min(len, 40), text, valid);
}

static int parse_word(const char *text, size_t len, uint32_t *quirks)
{
	size_t i;

	if (is_word(text, len, "none"))
		return 0;
	for (i = 0; i < GNV_ARRAY_LEN(quirk_words); i++)
		if (is_word(text, len, quirk_words[i].word)) {
			*quirks |= 1u << i;
			return 0;
		}
	return bad_word(text, len);
}

/* WORD[,WORD...] up to `end`. */
static int parse_words(const char *text, const char *end, uint32_t *quirks)
{
	size_t len;
	int ret;

	*quirks = 0;
	for (;; text += len + 1) {
		for (len = 0; text + len < end && text[len] != ','; len++)
			;
		ret = parse_word(text, len, quirks);
		if (ret || text + len == end)
			return ret;
	}
}

/* The drive that an entry is for, VVVV:DDDD=. An entry without one is for all. `text` is moved past it. */
static bool is_for(const char **text, const char *end, uint16_t vendor, uint16_t device)
{
	unsigned v, d;
	int used = 0;

	if (sscanf(*text, "%4x:%4x=%n", &v, &d, &used) != 2 || !used || *text + used > end)
		return true;
	*text += used;
	return v == vendor && d == device;
}

static int override(const char *words, uint16_t vendor, uint16_t device, uint32_t *quirks)
{
	const char *end;
	uint32_t got;

	for (;; words = end + 1) {
		bool mine;
		int ret;

		end = words + strcspn(words, ";");
		mine = is_for(&words, end, vendor, device);
		ret = parse_words(words, end, &got);
		if (ret)
			return ret;
		if (mine)
			*quirks = got;
		if (!*end)
			return 0;
	}
}

int gnv_quirks_look(uint16_t vendor, uint16_t device, const char *words, struct gnv_drive *drive)
{
	size_t i;

	*drive = (struct gnv_drive){ 0, "" };
	for (i = 0; i < GNV_ARRAY_LEN(known_drives); i++)
		if (known_drives[i].vendor == vendor && known_drives[i].device == device)
			*drive = (struct gnv_drive){ known_drives[i].quirks, known_drives[i].name };
	return words && *words ? override(words, vendor, device, &drive->quirks) : 0;
}

int gnv_quirks_find(uint16_t vendor, uint16_t device, struct gnv_drive *drive)
{
	return gnv_quirks_look(vendor, device, getenv("GPUNVME_QUIRKS"), drive);
}
