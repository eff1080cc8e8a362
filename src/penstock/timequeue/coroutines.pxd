# Nothing is typed: it is compiled for the calls it makes, of which an event loop makes many.
from penstock.timequeue.arguments cimport check_most, check_several
from penstock.timequeue.puts cimport drafted, plain
