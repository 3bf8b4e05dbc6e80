// Java's own HTTP server and client, for the matrix of programs.
//
// serve HOST PORT   gives back what is posted, on a thread for each request
// ask HOST PORT     bodies of several sizes at once and one after the other, and what came of them

import com.sun.net.httpserver.HttpServer;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;

public class Http {
    public static void main(String[] words) throws Exception {
        String host = words[1];
        int port = Integer.parseInt(words[2]);
        if (words[0].equals("serve")) {
            serve(host, port);
        } else {
            try {
                ask(URI.create("http://" + host + ":" + port + "/"));
            } catch (ConnectException error) {
                System.out.println("not connected");
            }
        }
    }

    static void serve(String host, int port) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(host, port), 100);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }

    static HttpRequest request(URI uri, byte[] body) {
        return HttpRequest.newBuilder(uri).POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
    }

    static void ask(URI uri) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (int size : new int[] {1, 10_000, 5_000_000}) {
            byte[] body = new byte[size];
            Arrays.fill(body, (byte) size);
            HttpResponse<byte[]> answer = client.send(request(uri, body), HttpResponse.BodyHandlers.ofByteArray());
            System.out.println(answer.statusCode() + " " + Arrays.equals(answer.body(), body));
        }
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        for (int i = 1; i <= 30; i++) {
            byte[] body = new byte[i * 1000];
            Arrays.fill(body, (byte) i);
            all.add(client.sendAsync(request(uri, body), HttpResponse.BodyHandlers.ofByteArray())
                    .thenApply(answer -> Arrays.equals(answer.body(), body)));
        }
        long same = 0;
        for (CompletableFuture<Boolean> one : all) {
            same += one.get() ? 1 : 0;
        }
        System.out.println(same + " at once");
    }
}
