"""A cluster on a busy day, for pictures: three queues, four nodes, and a notebook whose cells train there."""

from __future__ import annotations

import sys

from support.jupyter_server import JupyterServer
from trainings import Submitted

CLUSTER = """
cluster: vision-lab
nodes:
  - names: "a100-[0-1]"
    gpus: 8
    gpu_type: A100
    rack: rack-0
    cpus: 128
    memory: 1T
  - names: "a100-[2-3]"
    gpus: 8
    gpu_type: A100
    rack: rack-1
    cpus: 128
    memory: 1T
queues:
  - name: vision
    description: Image models
    guaranteed: 16
  - name: speech
    description: Speech models
    guaranteed: 12
    max: 16
  - name: students
    description: Courses and theses
    guaranteed: 4
    max: 8
default_queue: vision
"""

#: A loss that falls as losses do. Up to the step at which the pictures are taken it goes fast, from there on slowly.
TRAINING = """
import math, random, sys, time
from gpucluster.worker import report
total, fast = int(sys.argv[1]), int(sys.argv[2])
random.seed(total)
for step in range(1, total + 1):
    loss = 2.3 * math.exp(-4 * step / total) + 0.08 + random.gauss(0, 0.04)
    report(step, total=total, loss=round(loss, 4))
    print(f"step {step}/{total}  loss {loss:.4f}", flush=True)
    time.sleep(0.05 if step < fast else 0.6)
"""
FAILING = "raise SystemExit('there is no folder images/')"


def _python(code: str, *arguments: int) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


JOBS = {
    "clean-labels": ("--gpus 1 --queue students", _python(TRAINING, 20, 20)),
    "crop-images": ("--gpus 1 --queue students", _python(FAILING)),
    "resnet50": ("--gpus 8 --queue vision", _python(TRAINING, 900, 540)),
    "whisper-small": ("--gpus 4 --tasks 2 --queue speech", _python(TRAINING, 800, 236)),
    "thesis-gan": ("--gpus 2 --queue students", _python(TRAINING, 500, 410)),
    "tts-voices": ("--gpus 6 --queue speech", _python(TRAINING, 600, 83)),
    "course-ex3": ("--gpus 1 --queue students", _python(TRAINING, 300, 60)),
    "wav2vec": ("--gpus 8 --queue speech", _python(TRAINING, 10, 10)),
}


def fill(server: JupyterServer) -> dict[str, Submitted]:
    """Jobs of every kind, so that each part of the panels has something to show."""
    return {name: Submitted(server, name, options, *command) for name, (options, command) in JOBS.items()}


#: The cells of the notebook: the second ends with a plot, the third is at it when the picture is taken.
NOTEBOOK = (
    """%load_ext jupyter_gpucluster
import matplotlib.pyplot as plt
from jupyter_gpucluster import report
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
X, y = load_digits(return_X_y=True)

def train(*layers, epochs):
    net = MLPClassifier(layers, learning_rate_init=5e-4, random_state=0)
    for epoch in range(epochs):
        net.partial_fit(X / 16, y, classes=range(10))
        report(epoch + 1, total=epochs, loss=net.loss_)
    return net""",
    """%%submit --gpus 2 --name wide-net
net = train(256, 128, epochs=60)
plt.figure(figsize=(7, 1.4))
plt.plot(net.loss_curve_);""",
    """%%submit --gpus 4 --name noise-test
import time
import numpy as np
for trial in range(1, 601):  # how much noise does the net stand?
    accuracy = net.score(np.random.normal(X, trial / 60) / 16, y)
    report(trial, total=600, accuracy=accuracy)
    time.sleep(0.05)""",
)

#: Cells whose cards show one state each.
STATES = (
    "%load_ext jupyter_gpucluster",
    """%%submit --gpus 1 --name pretrain --no-wait
import time
from jupyter_gpucluster import report
for step in range(1, 1001):
    report(step, total=1000, loss=3 / step**0.4, lr=0.001)
    print("step", step)
    time.sleep(0.05 if step < 200 else 2)""",
    "%%submit --gpus 8 --tasks 2 --name ensemble --no-wait\n...",
    "%%submit --gpus 1 --queue students --name crop --no-wait\nopen('images/0.png')",
    "%%submit --gpus 1 --queue students --name evaluate --no-wait\nprint('0.973')",
)
