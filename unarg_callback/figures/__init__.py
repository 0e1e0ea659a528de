"""Pictures of layers and of what checks found, written to files; they need matplotlib.

``pip install 'unarg_callback[plots]'``. Nothing is shown on a screen and no global state of
matplotlib is changed. Each picture can be read in print and in grey.
"""
