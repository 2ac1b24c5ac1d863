/* SPDX-License-Identifier: MIT */
#include "options.h"
#include "nearest.h"
#include "output.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_HELP = 'h', KEY_FIRST = 0x100 }; /* of the options of a table, in its order */

struct parse {
	const struct option_def *defs;
	const char *usage;
	const char **operand;
	int room;
	int answer;
	struct argp argp;
	struct argp_option options[OPTIONS_MAX + 2];
};

/* Digits at *text, which moves past them. *scale becomes 10 to the power of their number. */
static int parse_digits(const char **text, uint64_t *value, uint64_t *scale)
{
	uint64_t n = 0;

	*scale = 1;
	if (**text < '0' || **text > '9')
		return -EINVAL;
	for (; **text >= '0' && **text <= '9'; ++*text) {
		if (__builtin_mul_overflow(n, (uint64_t)10, &n) || __builtin_add_overflow(n, (uint64_t)(**text - '0'), &n))
			return -ERANGE;
		*scale *= *scale < 1000000000 ? 10 : 1;
	}
	*value = n;
	return 0;
}

/* The power of 1024 that K, M, G or T stands for, with or without iB after it. 1 for the end of the text, 0 for anything else. */
static uint64_t parse_unit(const char *text)
{
	static const char units[] = "KMGT";
	const char *unit = *text ? strchr(units, *text >= 'a' && *text <= 'z' ? *text - 'a' + 'A' : *text) : NULL;

	if (!unit)
		return *text == '\0';
	return text[1] == '\0' || strcmp(text + 1, "iB") == 0 ? (uint64_t)1 << (10 * (unit - units + 1)) : 0;
}

/* Decimal digits. With @suffix also 64K, 1MiB and 1.5M, if that is a whole number of bytes. No sign, no space, no overflow. */
static int parse_number(const char *text, int suffix, uint64_t *value)
{
	uint64_t whole = 0, scale, part = 0, factor;
	int ret = parse_digits(&text, &whole, &scale);

	scale = 1;
	if (!ret && suffix && *text == '.') {
		text++;
		ret = parse_digits(&text, &part, &scale);
	}
	factor = suffix ? parse_unit(text) : *text == '\0';
	if (ret || !factor)
		return ret ? ret : -EINVAL;
	if (__builtin_mul_overflow(part, factor, &part) || part % scale)
		return -EINVAL;
	if (__builtin_mul_overflow(whole, factor, &whole) || __builtin_add_overflow(whole, part / scale, value))
		return -ERANGE;
	return 0;
}

static int set_number(const struct option_def *def, const char *text)
{
	uint64_t n = 0;
	int ret = parse_number(text, def->kind == OPTION_SIZE, &n);

	if (ret == -EINVAL)
		return misused("--%s takes %s, not '%s'", def->name,
			       def->kind == OPTION_SIZE ? "a size such as 4096, 64K, 1.5M or 1GiB" : "a number", text);
	if (ret || (def->kind == OPTION_U32 && n > UINT32_MAX))
		return misused("--%s %s is too large", def->name, text);
	if (n < def->min)
		return misused("--%s must be at least %" PRIu64, def->name, def->min);
	if (def->kind == OPTION_U32)
		*(uint32_t *)def->value = (uint32_t)n;
	else
		*(uint64_t *)def->value = n;
	return GO_ON;
}

static int set_option(const struct option_def *def, const char *text)
{
	if (def->kind == OPTION_FLAG) {
		*(int *)def->value = 1;
		json_wanted |= strcmp(def->name, "json") == 0;
	} else if (def->kind == OPTION_TEXT) {
		*(const char **)def->value = text;
	} else {
		return set_number(def, text);
	}
	return GO_ON;
}

static int print_help(const struct parse *p)
{
	printf("%s\n\nOptions:\n", p->usage);
	argp_help(&p->argp, stdout, ARGP_HELP_LONG, (char *)program);
	return EXIT_DONE;
}

/* The option that @name, @len characters of it, is or begins alone. *several if it begins more than one. */
static const struct option_def *find(const struct option_def *defs, const char *name, size_t len, int *several)
{
	const struct option_def *found = NULL;

	*several = 0;
	for (; defs->name; defs++) {
		if (strncmp(defs->name, name, len) != 0)
			continue;
		if (defs->name[len] == '\0')
			return defs;
		*several |= found != NULL;
		found = defs;
	}
	return found;
}

/* No option is called @word. The remedy names the option that may have been meant. */
static int unknown(const struct option_def *defs, const char *word)
{
	const size_t dashes = strspn(word, "-");
	struct nearest near = NEAREST_INIT(word + dashes, strcspn(word, "=") - dashes);

	for (; defs->name; defs++)
		nearest_look(&near, defs->name);
	if (near.name)
		return misused("unknown option '%s': did you mean --%s? Try --help", word, near.name);
	return misused("unknown option '%s'. Try --help", word);
}

/* What is wrong with @word, which getopt did not accept. It leaves a cluster of short options, @next, where it is. */
static int complain(const struct parse *p, const char *word, const char *next)
{
	size_t len = strcspn(word, "=");
	const struct option_def *def = NULL;
	int several = 0;

	if (strncmp(word, "--", 2) == 0) {
		def = find(p->defs, word + 2, len - 2, &several);
		next = !def || several ? word : next;
	} else if (*word == '-') {
		next = word;
	}
	if (several)
		return misused("'%s' begins several options. Try --help", word);
	if (def && def->kind == OPTION_FLAG && word[len])
		return misused("--%s takes no value", def->name);
	if (def && def->kind != OPTION_FLAG && !word[len])
		return misused("--%s needs a value. Try --help", def->name);
	return unknown(p->defs, next);
}

static int take(struct parse *p, int key, char *arg, const struct argp_state *state)
{
	if (key == KEY_HELP)
		return print_help(p);
	if (key == ARGP_KEY_ERROR)
		return complain(p, state->argv[state->next - 1], state->next < state->argc ? state->argv[state->next] : "");
	if (key != ARGP_KEY_ARG)
		return set_option(&p->defs[key - KEY_FIRST], arg);
	if (p->room-- <= 0)
		return misused("'%s' is one argument too many. Try --help", arg);
	*p->operand++ = arg;
	return GO_ON;
}

static error_t on_key(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;

	if (key != KEY_HELP && key != ARGP_KEY_ARG && key != ARGP_KEY_ERROR && (key < KEY_FIRST || key >= KEY_FIRST + OPTIONS_MAX))
		return ARGP_ERR_UNKNOWN;
	if (p->answer == GO_ON)
		p->answer = take(p, key, arg, state);
	return p->answer == GO_ON ? 0 : ECANCELED;
}

int parse_options(int argc, char **argv, const char *usage, const struct option_def *defs, const char **operand, int room)
{
	struct parse p = { .defs = defs, .usage = usage, .operand = operand, .room = room, .answer = GO_ON };
	int n = 0;

	for (; n < OPTIONS_MAX && defs[n].name; n++) /* a group of its own keeps its place in --help */
		p.options[n] = (struct argp_option){ defs[n].name, KEY_FIRST + n, defs[n].arg, 0, defs[n].help, n + 1 };
	p.options[n] = (struct argp_option){ "help", KEY_HELP, NULL, 0, "this text", n + 1 };
	p.argp = (struct argp){ .options = p.options, .parser = on_key };
	argp_parse(&p.argp, argc, argv, ARGP_SILENT, NULL, &p);
	return p.answer;
}
