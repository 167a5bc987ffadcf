"""Plain data of the scheduler: jobs, attempts, queues, resources, topology, placements. Imports nothing of ours."""
