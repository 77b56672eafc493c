'use strict';
// Reads what the record contains. frontend/prof/page.c writes it: JSON, deflated, in base64.

async function inflate(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return JSON.parse(await new Response(stream).text());
}

const keyOf = (...parts) => JSON.stringify(parts);

// Kernels that the emulator executed for programs without a record of Doorbell: the times are those of its model.
function emulatedKernels(report) {
  const known = new Set(report.kernels.map((kernel) => kernel.name));
  const kernels = report.emulated.flatMap((gpu) => (gpu.kernels || []).filter((kernel) => !known.has(kernel.name))
    .map((kernel) => ({ ...kernel, gpu })));
  const total = kernels.reduce((sum, kernel) => sum + kernel.model_ps / 1000, 0);
  return kernels.map(({ gpu, name, dispatches, waves, instructions, sectors, lds_conflict_cycles, model_ps }) => {
    const mean = model_ps / 1000 / dispatches;
    const count = (value, unit) => ({ mean: value / dispatches, total: value, calls: dispatches, unit,
      source: 'exact' });
    return { name, device: `emulated GPU ${gpu.gpu} of process ${gpu.process}`, machine: { arch: gpu.arch },
      calls: dispatches, total_ns: model_ps / 1000, min_ns: mean, mean_ns: mean, max_ns: mean, deviation_ns: 0,
      flops: null, bytes: null, gflops: null, gb_per_s: null, roofline: null, limit: null, occupancy: null,
      share: total ? model_ps / 1000 / total : 0, grid: null, block: null, registers: 0, wave: 0, metrics: {},
      counters: { waves: count(waves, 'waves'), instructions: count(instructions, 'instructions'),
        sectors: count(sectors, 'sectors'), 'bank conflicts': count(lds_conflict_cycles, 'cycles') } };
  });
}

// A kernel of the report with all that the record has about it: the `texts` and `lines` of its code, the `machine`, and
// its `index` in the list.
function joinKernels(data) {
  const code = new Map(data.code.map((entry) => [keyOf(entry.arch, entry.name), entry]));
  return [...data.report.kernels, ...emulatedKernels(data.report)].map((kernel, index) => {
    const machine = kernel.machine || data.machines[kernel.device] || null;
    const { texts = {}, lines = null } = (machine && code.get(keyOf(machine.arch, kernel.name))) || {};
    return { ...kernel, index, machine, texts, lines };
  });
}

// The whole of the data, in the form that the views use.
function makeModel(data) {
  const kernels = joinKernels(data);
  assignColors(kernels.map((kernel) => kernel.name));
  const byKey = new Map(kernels.map((kernel) => [keyOf(kernel.device, kernel.name), kernel]));
  const tracks = data.tracks.map(makeTrack);
  let end = 0;
  for (const track of tracks) end = Math.max(end, track.end);
  for (const process of data.processes) end = Math.max(end, process.end_ns);
  return {
    report: data.report,
    names: data.names,
    machines: data.machines,
    schedules: data.schedules,
    processes: data.processes,
    kernels,
    tracks,
    end: Math.max(end, 1),
    events: tracks.reduce((sum, track) => sum + track.count, 0),
    kernelOf: (device, name) => byKey.get(keyOf(device, name)) || null,
  };
}
