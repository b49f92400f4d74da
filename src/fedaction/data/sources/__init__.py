"""Everything that a recipe's `data` key may name."""
