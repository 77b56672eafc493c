/* doorbell devices: lists the devices of this machine, and why one cannot be used. */
#include "cli.h"
#include <stdlib.h>

struct ctx {
  bool json, verbose;
};
enum { JSON = OPTION_KEYS };
static const struct argp_option options[] = {
    {"json", JSON, NULL, 0,
     "Print JSON: {\"devices\": [{name, arch, description, emulated, memory (bytes), units, clock_mhz, "
     "memory_clock_mhz, pci, driver, usable, reason}]}; a number that is not known is 0",
     0},
    {"verbose", 'v', NULL, 0, "Print the units, the highest clocks, the PCI address and the driver as well", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case JSON: x->json = true; return 0;
  case 'v': x->verbose = true; return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static void print_json(const struct db_device_info *d, int n) {
  fputs("{\"devices\": [", stdout);
  for (int i = 0; i < n; i++)
    json_line(stdout,
              json_pack("{s:o, s:o, s:o, s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:b, s:o}", "name", json_text(d[i].name),
                        "arch", json_text(d[i].arch), "description", json_text(d[i].description), "emulated",
                        d[i].emulated, "memory", (json_int_t)d[i].memory, "units", (json_int_t)d[i].units, "clock_mhz",
                        (json_int_t)d[i].clock_mhz, "memory_clock_mhz", (json_int_t)d[i].memory_clock_mhz, "pci",
                        json_text(d[i].pci), "driver", json_text(d[i].driver), "usable", d[i].usable, "reason",
                        json_text(d[i].usable ? "" : d[i].reason)),
              i == 0);
  fputs("\n]}\n", stdout);
}

/* Prints what is known of a device on one line. */
static void print_details(const struct db_device_info *d) {
  const char *separator = "";
  if (!d->units && !d->clock_mhz && !d->memory_clock_mhz && !*d->pci && !*d->driver) return;
  printf("%-20s ", "");
  const struct {
    const char *format;
    unsigned value;
  } numbers[] = {
      {"%s%u units", d->units}, {"%sclock %u MHz", d->clock_mhz}, {"%smemory clock %u MHz", d->memory_clock_mhz}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].value) printf(numbers[i].format, separator, numbers[i].value), separator = ", ";
  if (*d->pci) printf("%sPCI %s", separator, d->pci), separator = ", ";
  if (*d->driver) printf("%sdriver %s", separator, d->driver);
  putchar('\n');
}

static void print_table(const struct db_device_info *d, int n, bool verbose) {
  printf("%-20s %-9s %9s  %s\n", "device", "arch", "memory", "description");
  for (int i = 0; i < n; i++) {
    char memory[16] = "-";
    if (d[i].memory) snprintf(memory, sizeof memory, "%.1f GB", (double)d[i].memory * 1e-9);
    printf("%-20s %-9s %9s  %s%s\n", d[i].name, *d[i].arch ? d[i].arch : "-", memory, d[i].description,
           d[i].emulated ? " (emulated)" : "");
    if (verbose) print_details(&d[i]);
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
    print_table(d, n, ctx.verbose);
  free(d);
  return EXIT_DONE;
}

const struct command devices_command = {
    .name = "devices",
    .summary = "list real and emulated devices, and why a device cannot be used",
    .argp = {.options = options,
             .parser = parse,
             .doc = "Lists the devices that db_open and DEV accept on this machine, with the instruction set and the "
                    "memory. For a device that is present but cannot be used, it prints the reason.\v"
                    "A unit is a compute unit of an AMD GPU, an SM of an NVIDIA GPU, or a processor of the CPU. What "
                    "the driver does not report is left out. Example:\n  doorbell devices -v"},
    .main = devices_main,
};
