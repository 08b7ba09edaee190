"""The regression lab: recorded threads under another compactor, model, prompt, policy, ranker or version.

report = await lab.run(["logs/"], "change.toml")
print(report)
assert report.safe
"""

from memory_engine.lab.change import LabChange, LabThresholds, RecallQuestion, read_change
from memory_engine.lab.measuring import Measured
from memory_engine.lab.report import LabFinding, LabReport, Metric, ThreadPair
from memory_engine.lab.running import run

__all__ = [
    "LabChange",
    "LabFinding",
    "LabReport",
    "LabThresholds",
    "Measured",
    "Metric",
    "RecallQuestion",
    "ThreadPair",
    "read_change",
    "run",
]  # fmt: skip
