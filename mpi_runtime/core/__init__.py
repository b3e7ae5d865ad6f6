"""The core: what a job is. Nothing in it is public but through the faces, and libraries use `extend`.

- `published.py`: public paths of classes and functions, for pickles on disk
"""
