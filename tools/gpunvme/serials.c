/* SPDX-License-Identifier: MIT */
#include "serials.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Add it once and keep it to the end: a serial number that is not remembered would stay in the report. */
static void add_serial(struct serials *s, const char *text, size_t len)
{
	for (unsigned i = 0; i < s->count; i++)
		if (strlen(s->text[i]) == len && !memcmp(s->text[i], text, len))
			return;
	if (s->count == SERIALS || !(s->text[s->count] = strndup(text, len)))
		s->forgot = 1;
	else
		s->count++;
}

/* Remember names that identify one drive: in plain form, and as JSON spells them. */
static void remember(struct serials *s, struct json_object *serial)
{
	const char *plain = json_object_get_string(serial);
	const char *spelled = json_object_to_json_string_ext(serial, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	const size_t len = strlen(spelled);

	if (strlen(plain) <= 3)
		return;
	add_serial(s, plain, strlen(plain));
	if (len != strlen(plain) + 2) /* more than the quotes */
		add_serial(s, spelled + 1, len - 2);
}

void serials_hide(struct serials *s, struct json_object *json)
{
	struct json_object *serial;

	if (json_object_is_type(json, json_type_array))
		for (size_t i = 0; i < json_object_array_length(json); i++)
			serials_hide(s, json_object_array_get_idx(json, i));
	if (!json_object_is_type(json, json_type_object))
		return;
	if (json_object_object_get_ex(json, "serial", &serial)) {
		remember(s, serial);
		json_object_object_add(json, "serial", json_object_new_string("(hidden)"));
	}
	json_object_object_foreach(json, name, value)
	{
		(void)name;
		serials_hide(s, value);
	}
}

/* Whole words only: somebody's serial number is "second". */
void serials_blot_out(const struct serials *s, char *text)
{
	for (unsigned i = 0; i < s->count; i++) {
		const size_t len = strlen(s->text[i]);

		for (char *at = text; (at = strstr(at, s->text[i])); at += len)
			if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[len]))
				memset(at, 'x', len);
	}
}

void serials_free(struct serials *s)
{
	while (s->count)
		free(s->text[--s->count]);
}
