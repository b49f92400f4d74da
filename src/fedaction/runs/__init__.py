"""The assembly: recipes in, run directories out."""

from fedaction.runs.recipe import load_recipe, parse_recipe
from fedaction.runs.study import resume_study, run_study

__all__ = ["load_recipe", "parse_recipe", "resume_study", "run_study"]
