"""Two network namespaces with an sshd in B, which has its own host key and configuration and admits one key."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

from launching import DEADLINE_S, HORO, ROOT, clean_environment

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402

PORT = 2200
A, B = hosts.ADDRESSES["A"], hosts.ADDRESSES["B"]
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")


def missing():
    if not SSHD or not shutil.which("ssh-keygen"):
        return "no sshd: install openssh-server (tools/setup does)"
    return hosts.missing()


def make_key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text()


class SshHosts:
    def __init__(self, pair, folder):
        self.pair, self.folder = pair, pathlib.Path(folder)
        self.known = self.folder / "known_hosts"
        self.identity = self.folder / "identity"
        (self.folder / "authorized").write_text(make_key(self.identity))
        self.known.write_text(f"[{B}]:{PORT} " + make_key(self.folder / "host_key"))
        os.makedirs("/run/sshd", exist_ok=True)
        settings = [
            *(f"Port {PORT}", f"ListenAddress {B}", f"HostKey {self.folder}/host_key", "PidFile none", "UsePAM no"),
            *(f"AuthorizedKeysFile {self.folder}/authorized", "StrictModes no", "PasswordAuthentication no"),
        ]
        (self.folder / "sshd_config").write_text("\n".join(settings) + "\n")
        # A program ssh that takes the user's configuration from here, not from the home folder.
        (self.folder / "config").write_text(f"UserKnownHostsFile {self.known}\nGlobalKnownHostsFile none\n")
        wrapper = self.folder / "bin/ssh"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/config "$@"\n')
        wrapper.chmod(0o755)
        self.log = open(self.folder / "sshd_log", "w", encoding="utf-8")
        command = [*pair.on("B"), SSHD, "-D", "-e", "-f", self.folder / "sshd_config"]
        self.sshd = subprocess.Popen(command, stderr=self.log)

    def await_sshd(self):
        end = time.monotonic() + DEADLINE_S
        while "listening" not in (self.folder / "sshd_log").read_text():
            assert time.monotonic() < end and self.sshd.poll() is None, (self.folder / "sshd_log").read_text()
            time.sleep(0.01)

    def end(self):
        self.sshd.terminate()
        self.sshd.wait()
        self.log.close()

    def command(self, *words, hosts_of=f"{A}:2,{B}:2"):
        options = ["-H", hosts_of, "-p", str(PORT), "-i", str(self.identity)]
        return [*self.pair.on("A"), HORO, "run", *options, *map(str, words)]

    def environment(self, env=()):
        own = clean_environment(env)
        return own | {"PATH": f"{self.folder}/bin:{own['PATH']}"}

    def start(self, *words, env=(), **more):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(self.command(*words, **more), env=self.environment(env), cwd=self.folder, **pipes)

    def run(self, *words, **more):
        job = self.start(*words, **more)
        out, errors = job.communicate(timeout=DEADLINE_S)
        return job.returncode, out, errors


@contextlib.contextmanager
def ssh_hosts(folder):
    with hosts.two_namespaces() as pair:
        both = SshHosts(pair, folder)
        try:
            both.await_sshd()
            yield both
        finally:
            both.end()
