# SPDX-License-Identifier: Apache-2.0
"""What commands print, and how they end where it cannot be printed."""
import os
import struct
import subprocess

from live_client import expect

HOSTILE = "a\x1b]0;title\x07\x9b2J\x7fb"
HARMLESS = "a?]0;title??2J?b"


def run(binary, *arguments, text="", **streams):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([binary, *arguments], input=text.encode(), timeout=120, env={**os.environ, "LOCI_CONFIG": "", "LOCI_MODEL": ""},
                          check=False, **streams)


# --- passwords ---

def test_no_password_is_printed(binary):
    done = run(binary, "serve", "--shared", "redis://ann:hidden@cache:7000/1", "--print-config")
    expect(done.returncode == 0 and b'shared = "redis://ann:***@cache:7000/1"  # --shared' in done.stdout, done)
    done = run(binary, "serve", "default", "--join", "postgrsql://ann:hidden@db/loci")
    expect(done.returncode == 2 and b"--join: expected postgresql://..., found something else" in done.stderr, done)
    expect(b"hidden" not in done.stderr, done.stderr)


# --- the file of options ---

def test_sampling_is_written_in_numbers(binary, tmp_path):
    path = tmp_path / "loci.toml"
    path.write_text("[sampling]\ntemperature = 0.7\ntop_p = 1\nmin_p = \"0.05\"\n")
    done = run(binary, "serve", "--config", str(path), "--print-config")
    for line in (f"temperature = 0.7  # {path}:2", f"top_p = 1  # {path}:3", f"min_p = 0.05  # {path}:4"):
        expect(line in done.stdout.decode(), f"{line}: {done}")


# --- a model's file ---

def test_a_file_of_a_model_cannot_write_to_the_terminal(binary, tmp_path):
    def text(value):
        data = value.encode()
        return struct.pack("<Q", len(data)) + data
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.architecture") + struct.pack("<I", 8) + text(HOSTILE))
    for words in (["inspect"], ["serve", "--port", "0", "--store", "", "--disk", "none", "--threads", "1", "--model"]):
        done = run(binary, *words, str(path))
        shown = (done.stdout + done.stderr).decode()
        expect(HARMLESS in shown and not any(control in shown for control in "\x1b\x07\x9b\x7f"), f"{words}: {done}")
