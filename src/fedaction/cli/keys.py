"""`fedaction keys`: certificates and keys for sites on machines of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedaction.cli.common import App, exit_on_refusal, refuse_pipe, say

_HELP = """Make certificates for a server and keys for sites: who may join, and whom sites believe.

Three steps, and no secret leaves the machine that it was made on:

- At the server: `fedaction keys server server.clinic.org --out keys`, and give every site keys/ca.crt.

- At each site: `fedaction keys site gym --out keys`, put ca.crt into keys, and give the server keys/gym.pub.

- At the server: put gym.pub into keys/sites. Then `serve` and `join` with --keys keys.

Both sides can compare fingerprints by telephone: `fedaction keys show FILE`.
"""
keys_app = App(help=_HELP)
Folder = Annotated[Path, typer.Option("--out", help="Folder to write to.")]


@keys_app.command("server")
def keys_server(
    hosts: Annotated[list[str], typer.Argument(help="Names and addresses by which sites reach the server.")],
    folder: Folder = Path("keys"),
) -> None:
    """Make the server's certificate, and the authority that sites know it by.

    Example: `fedaction keys server server.clinic.org 10.0.0.5 --out keys`. Sites must join by one of these names;
    localhost and 127.0.0.1 are always among them.
    """
    from fedaction.engines.flower.keys import make_server_keys, read_key

    with exit_on_refusal():
        paths = make_server_keys(hosts, folder)
        (folder / "sites").mkdir(exist_ok=True)
        about = read_key(paths["server.pem"])
        root = read_key(paths["ca.crt"])
    say(
        f"{paths['server.pem']}: the server's certificate, for {', '.join(about.names)}, until {about.until:%d %B %Y}"
    )
    say(f"{paths['server.key']}, {paths['ca.key']}: secret; they stay on this machine")
    say(f"{paths['ca.crt']}: give this one to every site; they can compare its fingerprint:\n  {root.fingerprint}")
    say(f"next: put NAME.pub of every site that may join into {folder / 'sites'}")


@keys_app.command("site")
def keys_site(
    name: Annotated[str, typer.Argument(help="The site's name, such as clinic.")], folder: Folder = Path("keys")
) -> None:
    """Make a site's key pair; the server is given the public half.

    Example: `fedaction keys site gym --out keys`. The site then joins with --name gym --keys keys, once keys has the
    server's ca.crt too.
    """
    from fedaction.engines.flower.keys import make_site_key, read_key

    with exit_on_refusal():
        paths = make_site_key(name, folder)
        about = read_key(paths["public"])
    say(f"{paths['private']}: secret; it stays on this machine")
    say(f"{paths['public']}: give this one to the server; it can compare its fingerprint:\n  {about.fingerprint}")
    if not (folder / "ca.crt").exists():
        say(f"next: put the server's ca.crt into {folder}")


@keys_app.command("show")
def keys_show(files: Annotated[list[Path], typer.Argument(help="Certificates and keys.")]) -> None:
    """Say what files are, for whom, until when, and their fingerprints.

    Example: `fedaction keys show keys/ca.crt keys/gym.pub`
    """
    from fedaction.engines.flower.keys import read_key

    for path in files:
        with exit_on_refusal():
            refuse_pipe(path)
            about = read_key(path)
        whom = f", for {', '.join(about.names)}" if about.names else ""
        until = f", until {about.until:%d %B %Y}" if about.until else ""
        say(f"{path}: {about.what}{whom}{until}\n  {about.fingerprint}")
