"""Eight processes lease and complete while they are killed at random: nothing is lost, nothing counts twice."""

from __future__ import annotations

import multiprocessing
import random
import time

import redis
from queueing import summary

from webgym.broker import BrokerConfig, connect
from webgym.keys import Keys
from webgym.queue import Completion, EpisodeTask, SyncTaskQueue

PROCESSES = 8
KILLS = 30
WAVE = 400


def act(url: str, uid: str, worker: str, seed: int) -> None:
    """Lease, sometimes fail or hand back, complete; until killed, or until a little while after the last task."""
    queue = SyncTaskQueue(connect(BrokerConfig(url)), Keys(uid), max_attempts=1000)
    rng = random.Random(seed)
    while not queue.counts("evaluate").open:  # The one evaluation task is the sign to leave.
        tasks = [t for t in queue.lease(worker, rng.randint(1, 20), 0.3) if t.purpose == "train"]
        rng.shuffle(tasks)
        dropped = {t.episode for t in tasks if rng.random() < 0.05}
        for task in tasks:
            if task.episode in dropped:
                if rng.random() < 0.5:
                    queue.fail(task.episode, task.attempt, "by chance")
                else:
                    queue.release([task])
        done = [
            Completion(t.episode, t.attempt, summary(t.episode, t.attempt), {"episodes": 1})
            for t in tasks
            if t.episode not in dropped
        ]
        queue.complete_many(done)
        if rng.random() < 0.1:  # As after a connection that broke before the reply came.
            queue.complete_many(done)


def test_nothing_is_lost_or_doubled(client: redis.Redis, config: BrokerConfig, keys: Keys) -> None:
    queue = SyncTaskQueue(client, keys, max_attempts=1000)
    # Forked from a server that has imported what they need: new ones start within milliseconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["webgym.queue", "test_queue_under_fire"])
    rng = random.Random(0)

    def start(number: int) -> multiprocessing.process.BaseProcess:
        process = context.Process(
            target=act, args=(config.url, keys.uid, f"worker-{number}", rng.randrange(2**31)), daemon=True
        )
        process.start()
        return process

    processes = [start(i) for i in range(PROCESSES)]
    added = kills = 0
    deadline = time.monotonic() + 60
    while kills < KILLS or queue.counts().open:
        assert time.monotonic() < deadline, f"{queue.counts()} after {kills} kills"
        if kills < KILLS:
            if queue.counts().queued < WAVE:
                queue.add(task(i) for i in range(added, added + WAVE))
                added += WAVE
            victim = rng.randrange(PROCESSES)
            processes[victim].kill()
            processes[victim].join()
            processes[victim] = start(victim)
            kills += 1
        time.sleep(rng.uniform(0.0, 0.1))
    queue.add([EpisodeTask("leave", "t", purpose="evaluate")])
    for process in processes:
        process.join(10)
        assert process.exitcode == 0
    results = queue.results(count=2 * added)
    assert sorted(r.episode for r in results) == sorted(task(i).episode for i in range(added))
    assert all(r.summary is not None and r.summary.attempt == r.attempt for r in results)
    assert queue.counters() == {"episodes": float(added)}
    counts = queue.counts("train")
    assert (counts.queued, counts.leased, counts.done, counts.dead) == (0, 0, added, 0)


def task(number: int) -> EpisodeTask:
    return EpisodeTask(f"e-{number}", "t", seed=number, priority=number % 3)
