"""Every parser of bytes from outside: what makes bytes that it takes, what reads them, and its one error."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedaction.data import store
from fedaction.data.clips.container import VideoError
from fedaction.data.clips.depth import read_depth
from fedaction.data.features.egocentric import epic
from fedaction.data.features.egocentric.tables import AXES, read_series
from fedaction.data.features.recordings import read_wave
from fedaction.data.features.store import load_features
from fedaction.data.imports import inspect, read_layout
from fedaction.data.public.readers import READERS
from fedaction.data.public.utd_inertial import READER as INERTIAL
from fedaction.data.signals.imports import read_recordings
from fedaction.data.signals.store import load_signals
from fedaction.data.sources.arrays import ArraySource
from fedaction.engines.flower.envelope import EnvelopeError
from fedaction.engines.flower.keys import KeyFileError
from fedaction.engines.messages import MessageError
from fedaction.federation.settings import RecipeError
from fedaction.models.files import ModelFileError, load_model
from fedaction.models.weights import WeightsError, read_tensors
from fedaction.runs.checkpoint import CheckpointError
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import load_recipe
from fedaction.serve.tables import read_columns
from fedaction.server.devices import fleet_of
from fedaction.training.distil_recipe import load_distil_recipe
from fedaction.training.evaluate_recipe import load_evaluate_recipe
from tests.fuzz import kept, mutate, samples, sets

Files = dict[str, bytes]


@dataclass(frozen=True)
class Parser:
    """A parser and what it takes."""

    name: str
    make: Callable[[Path], object]  # writes valid files to a folder
    read: Callable[[Path], object]  # reads the folder
    refusal: type[Exception] = ValueError  # the one error
    change: mutate.Change | Mapping[str, mutate.Change] = mutate.change  # of any file, or by the end of its name
    seal: Callable[[Path], None] | None = None  # puts right what would be noticed before the parser is reached
    default: int = 150  # mutants of the default run
    needs: str = ""  # a package that not everybody has
    lenient: bool = False  # it takes what it can, and refuses nothing

    def files(self) -> Files:
        """Valid bytes, by name."""
        with tempfile.TemporaryDirectory() as folder:
            self.make(Path(folder))
            return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}

    def change_file(self, name: str, content: bytes, random: np.random.Generator) -> bytes:
        """The bytes of a file with something wrong."""
        if callable(self.change):
            return self.change(content, random)
        return next((how for end, how in self.change.items() if name.endswith(end)), mutate.change)(content, random)


JSON = {".json": mutate.change_json, ".npy": mutate.change_front}

MODEL = "a.safetensors"
TENSORS = {".json": mutate.change_json, ".safetensors": mutate.change_tensors}

_RECIPES = (
    Parser(
        "distil recipe",
        samples.make_recipe("edge/distil"),
        samples.at("a.toml", load_distil_recipe),
        RecipeError,
    ),
    Parser(
        "evaluate recipe",
        samples.make_recipe("fedvssl/evaluate"),
        samples.at("a.toml", load_evaluate_recipe),
        RecipeError,
    ),
)
TXT, CSV = {".txt": mutate.change}, {".csv": mutate.change}
MAT = mutate.change_matlab
_SETS = (
    Parser("uestc", sets.make_matrix("v", 4, 75), samples.at("a.mat", READERS["uestc"].read), change=MAT),
    Parser("utd inertial", sets.make_matrix("d_iner", 9, 6), samples.at("a.mat", INERTIAL.read), change=MAT),
    Parser("utd depth", sets.make_matrix("d_depth", 6, 5, 4), samples.at("a.mat", read_depth), change=MAT),
    Parser(
        "msr", samples.write("a.txt", samples.format_rows(40, 4)), samples.at("a.txt", READERS["msr_action3d"].read)
    ),
    Parser(
        "florence",
        samples.write("a.txt", samples.format_rows(30, 3)),
        samples.at("a.txt", READERS["florence3d"].read),
    ),
    Parser("ucf lists", sets.make_ucf, sets.read_ucf, change=TXT),
    Parser("hmdb lists", sets.make_hmdb, sets.read_hmdb, change=TXT),
    Parser("kinetics lists", sets.make_kinetics, sets.read_kinetics, change=CSV),
    Parser("airtlab lists", sets.make_airtlab, sets.read_airtlab, change=CSV),
    Parser("multimodal ea", sets.make_sensors, sets.read_sensors),
    Parser("stanford ecm", sets.make_stanford, sets.read_stanford),
    Parser("epic tables", sets.make_epic, epic.read),
    Parser("given vectors", sets.make_vectors, sets.read_vectors, change=mutate.change_archive),
    Parser("ego-exo", sets.make_ego_exo, sets.read_ego_exo, change=mutate.change_archive),
    Parser("onnx extractor", samples.make_onnx, sets.read_extractor, default=60, needs="onnxruntime"),
)
_KEPT = (
    Parser(
        "checkpoint, segments",
        kept.make_segments,
        samples.read_checkpoint,
        CheckpointError,
        TENSORS,
        seal=kept.forge_segments,
    ),
    Parser("status, serve, join", kept.make_records, kept.read_records, change=JSON),
    Parser("roll of sites", kept.make_roll, kept.read_roll, change=JSON),
    Parser("news", kept.make_news, kept.read_news, lenient=True),
    Parser("keys", kept.make_keys, kept.read_keys, KeyFileError, needs="cryptography"),
    Parser("list of models", kept.make_models, kept.read_models, change=JSON, lenient=True),
    Parser("controls", kept.make_controls, kept.read_controls, change=JSON, lenient=True),
    Parser("analysis, profile", kept.make_analysis, kept.read_analysis, change=JSON),
    Parser("parts, clips", kept.make_parts, kept.read_parts, change=JSON),
    Parser("clock", kept.make_seconds, kept.read_clock, lenient=True),
    Parser("environment", kept.make_environment, kept.read_machine, change=JSON),
)

PARSERS: dict[str, Parser] = {
    parser.name: parser
    for parser in (
        Parser("recipe", samples.make_recipe("fsar/demo"), samples.at("a.toml", load_recipe), RecipeError),
        Parser(
            "devices", samples.write("a.toml", samples.DEVICES), lambda f: fleet_of(str(f / "a.toml")), RecipeError
        ),
        Parser(
            "layout",
            samples.write("a.json", json.dumps(samples.LAYOUT)),
            samples.at("a.json", read_layout),
            change=JSON,
        ),
        Parser("skeleton store", samples.make_store, store.load, change=JSON),
        Parser("signal store", samples.make_signals, load_signals, change=JSON),
        Parser("feature store", samples.make_features, load_features, change=JSON),
        Parser("arrays", samples.make_arrays, lambda f: ArraySource(arrays=str(f)).list_videos(0), change=JSON),
        Parser("npz", samples.make_npz, samples.at("a.npz", inspect), change=mutate.change_archive),
        Parser(
            "npy",
            lambda f: np.save(f / "a.npy", samples.walk()),
            samples.at("a.npy", samples.accept),
            change=mutate.change_front,
        ),
        Parser("csv", samples.write("a.csv", samples.format_table()), samples.at("a.csv", samples.accept)),
        Parser(
            "csv, named", samples.write("a.csv", samples.format_table(True, ";")), samples.at("a.csv", samples.accept)
        ),
        Parser(
            "json", samples.write("a.json", samples.format_clip()), samples.at("a.json", samples.accept), change=JSON
        ),
        Parser(
            "signals csv",
            samples.write("a.csv", samples.format_readings()),
            lambda f: read_recordings(f / "a.csv", ("x", "y"), 25.0),
        ),
        Parser(
            "series csv", samples.write("a.csv", samples.format_series()), lambda f: read_series(f / "a.csv", AXES)
        ),
        Parser("labels csv", samples.make_labels, samples.read_labels, change={".csv": mutate.change}),
        Parser(
            "predict csv", samples.write("a.csv", samples.format_table()), lambda f: read_columns(f / "a.csv", 45)
        ),
        Parser(
            "mat", samples.make_matlab, samples.at("a.mat", READERS["utd_mhad"].read), change=mutate.change_matlab
        ),
        Parser("ntu", samples.write("a.skeleton", samples.NTU), samples.at("a.skeleton", READERS["ntu60"].read)),
        Parser("text table", samples.write("a.txt", samples.TABLE), samples.at("a.txt", READERS["kard"].read)),
        Parser("pku", samples.make_pku, samples.read_pku),
        Parser("asf, amc", samples.make_acclaim, samples.read_acclaim),
        Parser("wave", samples.make_wave, samples.at("a.wav", read_wave)),
        Parser(
            "checkpoint",
            samples.make_checkpoint,
            samples.read_checkpoint,
            CheckpointError,
            TENSORS,
            seal=samples.forge,
        ),
        Parser(
            "model file", samples.make_program, samples.at(MODEL, load_model), ModelFileError, TENSORS, default=60
        ),
        Parser(
            "3D ResNet file", samples.make_resnet, samples.at(MODEL, load_model), ModelFileError, TENSORS, default=60
        ),
        Parser(
            "torch file",
            samples.make_weights,
            samples.at("a.pth", read_tensors),
            WeightsError,
            mutate.change_archive,
            default=60,
        ),
        Parser("onnx", samples.make_onnx, samples.read_onnx, ModelFileError, default=60, needs="onnxruntime"),
        Parser(
            "avi",
            samples.make_video("a.avi", "mpeg4"),
            samples.read_video,
            VideoError,
            mutate.change_ends,
            None,
            60,
            "av",
        ),
        Parser(
            "mp4",
            samples.make_video("a.mp4", "libx264"),
            samples.read_video,
            VideoError,
            mutate.change_ends,
            None,
            60,
            "av",
        ),
        Parser(
            "mkv",
            samples.make_video("a.mkv", "libvpx"),
            samples.read_video,
            VideoError,
            mutate.change_ends,
            None,
            60,
            "av",
        ),
        Parser("Flower messages", samples.make_messages, samples.read_messages, MessageError),
        Parser("Flower envelope", samples.make_envelope, samples.read_envelope, EnvelopeError),
        Parser("Flower pieces", samples.make_pieces, samples.read_pieces, EnvelopeError, needs="flwr"),
        Parser("Flower members", samples.make_members, samples.read_member_list, MessageError, mutate.change_json),
        Parser("metrics", samples.make_metrics, samples.at("metrics.jsonl", read_rows)),
        Parser("result, evidence", samples.make_result, samples.read_run_files, change=JSON),
        *_RECIPES,
        *_SETS,
        *_KEPT,
    )
}
