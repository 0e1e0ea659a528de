"""Multilabel classification with sparse maps: data, a linear model, a study of losses."""
