/* SPDX-License-Identifier: MIT */
#include "progress.h"
#include "output.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define MOST_S 360000.0 /* of an estimate */

double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void progress_start(struct progress *p, uint64_t total, const char *unit)
{
	p->total = total;
	p->unit = unit;
	p->start = now_s();
	p->next = p->start + 0.2;
	p->on = isatty(STDERR_FILENO);
}

static int window_width(void)
{
	struct winsize window;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col >= 20 ? window.ws_col : 80;
}

static const char *amount(const struct progress *p, double n)
{
	static char text[2][48];
	static unsigned turn;
	char *out = text[turn++ % 2];

	if (!p->unit)
		return human(n);
	snprintf(out, sizeof(text[0]), "%.0f %s", n, p->unit);
	return out;
}

/* One line, cut to the window, and what was there before is wiped out. */
static void redraw(const char *text)
{
	int width = window_width() - 1;

	fprintf(stderr, "\r%-*.*s", width, width, text);
}

/* An estimate, where there is one: nothing is done yet, or what is left would take days. */
static const char *estimate(double work, double rate)
{
	static char text[32];
	const double seconds = rate > 0 ? work / rate : MOST_S;

	if (seconds < MOST_S)
		snprintf(text, sizeof(text), "%d:%02d left", (int)seconds / 60, (int)seconds % 60);
	else
		snprintf(text, sizeof(text), "-:-- left");
	return text;
}

void progress_show(struct progress *p, uint64_t done)
{
	double now = now_s(), rate = (double)done / (now - p->start);
	double share = p->total ? (double)done / (double)p->total : 0;
	const char *left = estimate((double)p->total - (double)done, rate);
	int bar = window_width() - 50;
	char text[512], marks[256];

	if (!p->on || now < p->next || share > 1)
		return;
	p->next = now + 0.2;
	bar = bar < 10 ? 10 : bar > 200 ? 200 : bar;
	memset(marks, '#', sizeof(marks));
	if (p->unit && !*p->unit)
		snprintf(text, sizeof(text), "[%-*.*s] %3.0f %%  %s", bar, (int)(share * bar), marks, share * 100, left);
	else if (p->total)
		snprintf(text, sizeof(text), "[%-*.*s] %3.0f %%  %s/s  %s", bar, (int)(share * bar), marks, share * 100, amount(p, rate), left);
	else
		snprintf(text, sizeof(text), "%s  %s/s", amount(p, (double)done), amount(p, rate));
	redraw(text);
}

void progress_end(const struct progress *p)
{
	if (!p->on)
		return;
	redraw("");
	fputc('\r', stderr);
}

volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

void catch_signals(void)
{
	struct sigaction action, before;

	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN) /* as nohup has it */
		sigaction(SIGHUP, &action, NULL);
}
