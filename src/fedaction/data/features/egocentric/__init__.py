"""Egocentric datasets with several modalities: EPIC-Kitchens-100, Multimodal Egocentric Activity, Stanford-ECM."""
