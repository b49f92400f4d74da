"""Fixed-width features of recordings of any modality, and where they are kept."""

from fedaction.data.features.clients import clients_from_features
from fedaction.data.features.egocentric.collect import EGOCENTRIC, dataset_of, from_egocentric
from fedaction.data.features.extract import EXTRACTORS, Extractor, Recording, built_in
from fedaction.data.features.given import find_extractor
from fedaction.data.features.make import extract, keep_features, make_features, take_features
from fedaction.data.features.recordings import SENSORS, Collection, from_folder, from_public, from_signals, from_store
from fedaction.data.features.store import MODALITIES, FeatureSet, Modality, load_features, save_features

__all__ = [
    "EGOCENTRIC",
    "EXTRACTORS",
    "MODALITIES",
    "SENSORS",
    "Collection",
    "Extractor",
    "FeatureSet",
    "Modality",
    "Recording",
    "built_in",
    "clients_from_features",
    "dataset_of",
    "extract",
    "find_extractor",
    "from_egocentric",
    "from_folder",
    "from_public",
    "from_signals",
    "from_store",
    "keep_features",
    "load_features",
    "make_features",
    "save_features",
    "take_features",
]
