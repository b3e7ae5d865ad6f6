"""Files that outlive a job: records that are only added, one owner at a time, nobody else who may write.

- `segments.py`: files of records
- `claim.py`: keeps two jobs from using one directory
- `private.py`: makes and checks files that only this user may write
- `session_files.py`: names of sessions, with the secrets by which programs connect
- `writing.py`: writes beside and renames, so that a file or directory is there as a whole or as it was before
"""
