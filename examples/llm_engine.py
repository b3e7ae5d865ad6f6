"""One allocation, an engine for language models on its GPUs, and the calls that ask it.

    sbatch examples/llm_engine.sbatch
    python examples/llm_engine.py -- vllm serve MODEL --host 127.0.0.1 --port {port}
    python examples/llm_engine.py            # without an engine: a small program answers in its place

The engine is a command that opens {port} and answers HTTP. An actor starts it, and ends it. If the engine dies, the
actor restarts and starts it again; the calls that it left without an answer ask once more.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence

import mpi_runtime as ray

STAND_IN = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"text": asked["prompt"].upper()}]}).encode())

    def log_message(self, *words):
        pass

ThreadingHTTPServer.request_queue_size = 128  # all calls that waited come at once when it has started again
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


@ray.remote(num_cpus=1, max_restarts=2, max_task_retries=-1, max_concurrency=16)
class Engine:
    """The engine: it runs on the GPUs of this actor, and ends with it."""

    def __init__(self, command: Sequence[str], start_s: float) -> None:
        import socket

        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([word.replace("{port}", str(port)) for word in command])
        deadline = time.monotonic() + start_s
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the engine has not started: its exit code is {self.process.poll()}")
            time.sleep(0.1)
        print(f"the engine {self.process.pid} answers at {self.url}, GPUs {ray.get_gpu_ids()}", flush=True)

    def is_up(self) -> bool:
        try:
            return bool(urllib.request.urlopen(self.url + "/health", timeout=5).status == 200)
        except OSError:
            return False

    def complete(self, request: dict[str, object]) -> str:
        """Ask the engine on its own host, so that it need not listen on a network."""
        body = json.dumps(request).encode()
        asked = urllib.request.Request(self.url + "/v1/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked) as answer:
                return str(json.load(answer)["choices"][0]["text"])
        except OSError as error:
            try:  # the exit code arrives after the end of the connection; poll() may miss it in one of several threads
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                raise error from None
            os._exit(1)  # the actor restarts, and with it the engine; calls that it has not answered run again


@ray.remote(num_cpus=1)
def review(engine: "ray.ActorHandle[Engine]", number: int) -> tuple[str, str]:
    """A client: any call of the job, on any host."""
    prompt = f"prompt {number}"
    return prompt, ray.get(engine.complete.remote({"prompt": prompt, "max_tokens": 64}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=0, help="the GPUs of the engine")
    parser.add_argument("--start-s", type=float, default=1800, help="how long a model may take to load")
    parser.add_argument("command", nargs="*", default=[sys.executable, "-c", STAND_IN, "{port}"])
    options = parser.parse_args()
    ray.init()
    engine = Engine.options(num_gpus=options.gpus).remote(options.command, options.start_s)
    refs = [review.remote(engine, number) for number in range(options.prompts)]
    for prompt, text in ray.get(refs):
        print(f"{prompt!r}: {text!r}")


if __name__ == "__main__":
    main()
