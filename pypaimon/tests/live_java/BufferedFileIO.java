import java.io.File;
import java.io.IOException;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.SeekableInputStream;
import org.apache.paimon.fs.local.LocalFileIO;

/**
 * Local files that are read through a buffer. Paimon reads the head of each manifest byte by byte, with a call of the
 * system for each byte.
 */
final class BufferedFileIO extends LocalFileIO {
    @Override
    public SeekableInputStream newInputStream(Path path) throws IOException {
        return new Stream(toFile(path));
    }

    private static final class Stream extends LocalSeekableInputStream {
        private final byte[] buffer = new byte[4096];
        private int next;
        private int end;

        private Stream(File file) throws IOException {
            super(file);
        }

        @Override
        public int read() throws IOException {
            return fill() ? buffer[next++] & 0xFF : -1;
        }

        @Override
        public int read(byte[] target, int offset, int length) throws IOException {
            if (next == end && length >= buffer.length) {
                return super.read(target, offset, length);
            }
            if (!fill()) {
                return -1;
            }
            int count = Math.min(length, end - next);
            System.arraycopy(buffer, next, target, offset, count);
            next += count;
            return count;
        }

        /** Whether there is a byte to read. */
        private boolean fill() throws IOException {
            if (next == end) {
                next = 0;
                end = Math.max(super.read(buffer, 0, buffer.length), 0);
            }
            return next < end;
        }

        @Override
        public long getPos() throws IOException {
            return super.getPos() - (end - next);
        }

        @Override
        public void seek(long position) throws IOException {
            next = end;
            super.seek(position);
        }
    }
}
