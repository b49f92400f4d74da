"""The assembly: recipes in, run directories out."""
