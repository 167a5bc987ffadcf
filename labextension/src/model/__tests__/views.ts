/** Views for tests, with what a test does not care about filled in; as tests/unit/notebook/views.py. */
import { AttemptView, JobView, Progress, TaskView } from '../../api/schemas';

export const SECOND_US = 1e6;

export function aTask(other: Partial<TaskView> = {}): TaskView {
  return {
    role: 'worker',
    rank: 0,
    node: 'node-0',
    gpus: ['GPU-0'],
    gpu_indices: [0],
    state: 'running',
    exit_code: null,
    reason: null,
    cpu_percent: null,
    memory_bytes: null,
    note: null,
    ended_us: null,
    stop_cause: null,
    ...other
  };
}

export function anAttempt(
  tasks: TaskView[] = [aTask()],
  other: Partial<AttemptView> = {}
): AttemptView {
  return {
    id: 'a1',
    number: 1,
    state: 'active',
    created_us: 0,
    started_us: 0,
    ended_us: null,
    outcome: null,
    reason: null,
    tasks,
    tasks_left_out: 0,
    ...other
  };
}

export function aProgress(
  step: number,
  total: number | null = null,
  metrics: Progress['metrics'] = {},
  timeS = 0
): Progress {
  return {
    step,
    total,
    metrics,
    time_us: timeS * SECOND_US,
    rank: 0,
    source: 'report',
    description: null
  };
}

/** A running job 12 "train" of mine in queue vision, with two GPUs. */
export function aJob(other: Partial<JobView> = {}): JobView {
  const view: Partial<JobView> = {
    id: '01' + 'a'.repeat(24),
    number: 12,
    name: 'train',
    owner: 'uid:1',
    owner_name: 'ada',
    mine: true,
    queue: 'vision',
    state: 'running',
    reason: null,
    waits: null,
    position: null,
    tier: 1,
    priority: 0,
    gpus: 2,
    gpu_types: [],
    tasks: 1,
    cpus: 4,
    memory_bytes: 0,
    time_limit_s: null,
    submitted_us: 0,
    started_us: null,
    ended_us: null,
    first_feedback_us: null,
    attempts_made: 0,
    attempt: null,
    progress: null,
    share: 'owner',
    notebook_path: null,
    cell_id: null,
    can_control: true,
    can_read: true,
    seq: 1,
    ...other
  };
  return view as JobView;
}
