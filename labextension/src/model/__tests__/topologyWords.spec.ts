import { nullTranslator } from '@jupyterlab/translation';

import { GpuView, NodeView } from '../../api/schemas';
import { gpuView, jobView, nodeView } from '../testing';
import { nodeTree, topology } from '../topology';
import {
  gpuText,
  healthText,
  largestSentence,
  largestText,
  levels,
  memoryOf,
  memoryShort,
  nodeNotes,
  nodeText,
  pinnedText,
  rackText
} from '../topologyWords';

const trans = nullTranslator.load('jupyter_gpucluster');
const names = levels(undefined, trans);
const GIB = 2 ** 30;

function told(gpu: Partial<GpuView>, node: Partial<NodeView> = {}): string {
  const tree = nodeTree(
    nodeView({ name: 'node-0', gpus: [gpuView({ index: 3, ...gpu })], ...node })
  );
  return gpuText(tree, tree.boxes[0], names, trans);
}

describe('a GPU in words', () => {
  it('tells node, type, place, job, utilisation and memory', () => {
    expect(
      told({
        switch: 1,
        nvlink_island: 0,
        occupied: true,
        mine: true,
        job_number: 12,
        job_name: 'train-resnet',
        utilization_percent: 87,
        memory_used_bytes: 41 * GIB
      })
    ).toBe(
      'node-0 GPU 3 · A100 80 GiB · socket 0, switch 1, NVLink island 0 · job 12 train-resnet (you) · utilisation 87 % · 41 of 80 GiB'
    );
  });

  it('calls a simulated one simulated, and does not invent its utilisation', () => {
    expect(told({ simulated: true })).toBe(
      'node-0 GPU 3 · A100 80 GiB (simulated) · socket 0, switch 0 · free · utilisation not measured'
    );
  });

  it('names the owner where the job is known to the page', () => {
    const tree = nodeTree(
      nodeView({
        gpus: [gpuView({ job_number: 14, job_name: 'x', job_id: 'k' })]
      })
    );
    const job = jobView({ id: 'k', owner_name: 'grace', mine: false });
    expect(gpuText(tree, tree.boxes[0], names, trans, job)).toContain(
      '· job 14 x (grace) ·'
    );
  });

  it.each<[string, Partial<GpuView>, string]>([
    ['a stranger’s', { occupied: true }, 'held by somebody’s job'],
    [
      'a foreign one',
      { occupied: true, health: 'foreign', note: 'in use by python' },
      'used outside the cluster: in use by python'
    ],
    [
      'a bad one',
      { health: 'bad', note: 'fell off the bus' },
      'out of order: fell off the bus'
    ],
    [
      'a bad one under a stranger’s job',
      { health: 'bad', occupied: true },
      'held by somebody’s job · out of order'
    ],
    ['a free one', {}, 'free'],
    [
      'an idle one with a job',
      { occupied: true, utilization_percent: 2 },
      'held by somebody’s job · utilisation 2 %: idle'
    ]
  ])('tells of %s', (_, gpu, words) => {
    expect(told(gpu)).toContain(`switch 0 · ${words}`);
  });

  it('of a cordoned node says so', () => {
    const text = told(
      {},
      { health: 'cordoned', set_by: 'ada', set_reason: 'new fans' }
    );
    expect(text).toContain('· idle ·');
    expect(text).toContain('· cordoned by ada: new fans');
  });
});

describe('a node in words', () => {
  it('tells types, what is free, islands, cores, memory and notes', () => {
    const node = nodeView({
      name: 'node-0',
      rack: 'rack-0',
      capacity: { cpu: 64000, memory: 512 * GIB },
      used: { cpu: 12000, memory: 100 * GIB },
      gpus: [0, 1, 2].map(index =>
        gpuView({ index, nvlink_island: index < 2 ? 0 : null })
      ),
      notes: ['its disk is nearly full']
    });
    expect(nodeText(nodeTree(node), names, trans)).toBe(
      'node-0 · rack-0 · 3 × A100 80 GiB · 3 of 3 free · NVLink island 0: 2 of 2 free · 12 of 64 cores in use · memory 100 of 512 GiB in use · its disk is nearly full'
    );
  });

  it('says that jobs of a cordoned node go on', () => {
    const tree = nodeTree(
      nodeView({ health: 'cordoned', gpus: [gpuView({ occupied: true })] })
    );
    expect(healthText(tree, trans)).toBe('cordoned; its jobs go on');
  });

  it('tells what an administrator set once, in its own words', () => {
    const tree = nodeTree(
      nodeView({
        health: 'lost',
        set_by: 'ada',
        notes: ['set lost by ada on 2026-01-02 at 03:04 UTC', 'no fork server']
      })
    );
    expect(nodeNotes(tree, trans)).toEqual(['lost by ada', 'no fork server']);
  });
});

describe('what is free in words', () => {
  const { free } = topology([
    nodeView({ gpus: [gpuView({ nvlink_island: 0 }), gpuView({ index: 1 })] })
  ]);

  it('is short, with all levels in a sentence', () => {
    expect(largestText(free, names, trans)).toBe('NVLink island 1 · node 2');
    expect(largestSentence(free, names, trans)).toBe(
      'Most free GPUs within one: switch 2, socket 2, NVLink island 1, node 2, rack 2, in all 2'
    );
  });

  it('leaves out islands where there are none', () => {
    const none = topology([nodeView({ gpus: [gpuView()] })]).free;
    expect(largestText(none, names, trans)).toBe('node 1');
  });
});

it('levels are called as the administrator calls them', () => {
  const own = levels(
    ['cluster', 'row', 'node', 'package', 'switch', 'gpu'],
    trans
  );
  expect(own).toEqual({
    rack: 'row',
    node: 'node',
    socket: 'package',
    switch: 'switch'
  });
  expect(rackText('row-3', own.rack)).toBe('row-3');
  expect(rackText('7', own.rack)).toBe('row 7');
});

it.each([
  [41 * GIB, '41 of 80 GiB', '41/80 GiB'],
  [0, '0 B of 80 GiB', '0/80 GiB'],
  [512 * 2 ** 20, '512 MiB of 80 GiB', '0.5/80 GiB']
])('memory of %d bytes is "%s"', (used, long, short) => {
  expect(memoryOf(used, 80 * GIB, trans)).toBe(long);
  expect(memoryShort(used, 80 * GIB)).toBe(short);
});

it('a job that is shown up says whose it is, where, and how it stands', () => {
  const onGpus = { number: 14, name: 'x', mine: false, gpus: 8, nodes: 2 };
  expect(pinnedText(onGpus, undefined, trans)).toBe(
    'job 14 x · 8 GPUs on 2 nodes'
  );
  expect(
    pinnedText(onGpus, jobView({ owner_name: 'grace', mine: false }), trans)
  ).toBe('job 14 x (grace) · 8 GPUs on 2 nodes · running');
});
