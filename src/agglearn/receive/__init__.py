"""Tables made elsewhere: files with one table each, and the AdKDD'21 challenge."""

from agglearn.receive.adkdd import read_adkdd, receive_adkdd
from agglearn.receive.release import Received
from agglearn.receive.tables import read_tables, receive_tables

__all__ = ["Received", "read_adkdd", "read_tables", "receive_adkdd", "receive_tables"]
