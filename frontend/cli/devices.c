/* doorbell devices: lists the devices of this machine, and why one cannot be used. */
#include "cli.h"
#include <stdlib.h>

struct ctx {
  bool json;
};
enum { JSON = OPTION_KEYS };
static const struct argp_option options[] = {
    {"json", JSON, NULL, 0,
     "Print JSON: {\"devices\": [{name, arch, description, emulated, memory (bytes), usable, reason}]}", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  if (key != JSON) return ARGP_ERR_UNKNOWN;
  x->json = true;
  return 0;
}

static void print_json(const struct db_device_info *d, int n) {
  fputs("{\"devices\": [", stdout);
  for (int i = 0; i < n; i++)
    json_line(stdout,
              json_pack("{s:o, s:o, s:o, s:b, s:I, s:b, s:o}", "name", json_text(d[i].name), "arch",
                        json_text(d[i].arch), "description", json_text(d[i].description), "emulated", d[i].emulated,
                        "memory", (json_int_t)d[i].memory, "usable", d[i].usable, "reason",
                        json_text(d[i].usable ? "" : d[i].reason)),
              i == 0);
  fputs("\n]}\n", stdout);
}

static void print_table(const struct db_device_info *d, int n) {
  printf("%-20s %-9s %9s  %s\n", "device", "arch", "memory", "description");
  for (int i = 0; i < n; i++) {
    char memory[16] = "-";
    if (d[i].memory) snprintf(memory, sizeof memory, "%.1f GB", (double)d[i].memory * 1e-9);
    printf("%-20s %-9s %9s  %s%s\n", d[i].name, *d[i].arch ? d[i].arch : "-", memory, d[i].description,
           d[i].emulated ? " (emulated)" : "");
    if (!d[i].usable) printf("%-20s cannot be used: %s\n", "", d[i].reason);
  }
}

static int devices_main(const struct command *self, int argc, char **argv) {
  struct ctx ctx = {0};
  command_parse(self, argc, argv, 0, &ctx);
  int n = db_devices(NULL, 0);
  if (n < 0) return fail_work(self, "%s", db_error());
  struct db_device_info *d = calloc((size_t)n + 1, sizeof *d);
  if (!d) return fail_work(self, "out of memory");
  int filled = db_devices(d, n);
  if (filled < n) n = filled;
  if (ctx.json)
    print_json(d, n);
  else
    print_table(d, n);
  free(d);
  return EXIT_DONE;
}

const struct command devices_command = {
    .name = "devices",
    .summary = "list real and emulated devices, and why a device cannot be used",
    .argp = {.options = options,
             .parser = parse,
             .doc = "Lists the devices that db_open and DEV accept on this machine, with the instruction set and the "
                    "memory. For a device that is present but cannot be used, it prints the reason."},
    .main = devices_main,
};
